"""CustomResourceDefinitions. Their schemas are JSON documents of their own (`structural_schema`)."""

# ruff: noqa: E501 (one line per field)

TABLE = """
meta.PartialObject v1.PartialObjectMetadata | The metadata of any object.
  metadata 1 meta.ObjectMeta! | Name, labels and other metadata.
apiextensions.CustomResourceDefinition v1.CustomResourceDefinition | A kind that this cluster serves in addition to its own.
  metadata 1 meta.ObjectMeta! | Name (PLURAL.GROUP), labels and other metadata.
  spec 2 apiextensions.CustomResourceDefinitionSpec! required | What the kind is.
  status 3 apiextensions.CustomResourceDefinitionStatus! | Whether it is served.
apiextensions.CustomResourceDefinitionSpec v1.CustomResourceDefinitionSpec | What a custom kind is.
  group 1 string! required | Its API group.
  names 3 apiextensions.CustomResourceDefinitionNames! required | Its names.
  scope 4 string/v1.ResourceScope! required | Cluster or Namespaced.
  versions 7 []apiextensions.CustomResourceDefinitionVersion! required | Its versions.
  conversion 9 apiextensions.CustomResourceConversion | How versions become each other: None.
  preserveUnknownFields 10 bool | Must be false; see x-kubernetes-preserve-unknown-fields.
apiextensions.CustomResourceDefinitionNames v1.CustomResourceDefinitionNames | The names of a custom kind.
  plural 1 string! required | In paths, in lower case.
  singular 2 string | For one object, in lower case.
  shortNames 3 []string | Abbreviations for command lines.
  kind 4 string! required | In objects, in CamelCase.
  listKind 5 string | The kind of its lists.
  categories 6 []string | Groups of kinds that it belongs to, such as all.
apiextensions.CustomResourceDefinitionVersion v1.CustomResourceDefinitionVersion | One version of a custom kind.
  name 1 string! required | Such as v1 or v1beta1.
  served 2 bool! required | Whether it is served.
  storage 3 bool! required | Whether objects are stored in it; exactly one is.
  deprecated 7 bool | Whether its use is answered with a warning.
  deprecationWarning 8 string* | That warning, instead of the usual one.
  schema 4 apiextensions.CustomResourceValidation | What objects look like.
  subresources 5 apiextensions.CustomResourceSubresources | Subresources that it has.
  additionalPrinterColumns 6 []apiextensions.CustomResourceColumnDefinition | Columns of kubectl get.
  selectableFields 9 []apiextensions.SelectableField | Fields for field selectors.
apiextensions.CustomResourceValidation v1.CustomResourceValidation | What objects look like.
  openAPIV3Schema 1 JSON | A structural schema.
apiextensions.CustomResourceSubresources v1.CustomResourceSubresources | Subresources of a custom kind.
  status 1 apiextensions.CustomResourceSubresourceStatus | The status, written by controllers only.
  scale 2 apiextensions.CustomResourceSubresourceScale | The number of replicas.
apiextensions.CustomResourceSubresourceStatus v1.CustomResourceSubresourceStatus | Enables /status.
apiextensions.CustomResourceSubresourceScale v1.CustomResourceSubresourceScale | Where /scale finds its values.
  specReplicasPath 1 string! required | The desired number, under .spec.
  statusReplicasPath 2 string! required | The actual number, under .status.
  labelSelectorPath 3 string* | The selector as text, under .spec or .status.
apiextensions.CustomResourceColumnDefinition v1.CustomResourceColumnDefinition | A column of kubectl get.
  name 1 string! required | Its heading.
  type 2 string! required | string, integer, number, boolean or date.
  format 3 string | Such as int32 or date-time.
  description 4 string | What it shows.
  priority 5 int32 | Above 0 only with -o wide.
  jsonPath 6 string! required | Where its value is.
apiextensions.SelectableField v1.SelectableField | A field for field selectors.
  jsonPath 1 string! required | Where it is.
apiextensions.CustomResourceConversion v1.CustomResourceConversion | How versions become each other.
  strategy 1 string/v1.ConversionStrategyType! required | None: only apiVersion changes.
  webhook - JSON | Not supported.
apiextensions.CustomResourceDefinitionStatus v1.CustomResourceDefinitionStatus | Whether a custom kind is served.
  conditions 1 []apiextensions.CustomResourceDefinitionCondition! map=type | NamesAccepted, Established and others.
  acceptedNames 2 apiextensions.CustomResourceDefinitionNames! | The names in use.
  storedVersions 3 []string! | Versions in which objects may be stored.
  observedGeneration 4 int64 | Generation the status is about.
apiextensions.CustomResourceDefinitionCondition v1.CustomResourceDefinitionCondition | One aspect of its state.
  type 1 string/v1.CustomResourceDefinitionConditionType! required | Name of the condition.
  status 2 string/v1.ConditionStatus! required | True, False or Unknown.
  lastTransitionTime 3 Time | When the status last changed.
  reason 4 string | One word for the last change.
  message 5 string | The same in a sentence.
  observedGeneration 6 int64 | Generation the condition was judged on.
apiregistration.APIService v1.APIService | Which server serves a group and version.
  metadata 1 meta.ObjectMeta! | Name, labels and other metadata; the name is the version, a dot and the group.
  spec 2 apiregistration.APIServiceSpec! | The group, the version and the server.
  status 3 apiregistration.APIServiceStatus! | Whether it is available.
apiregistration.APIServiceSpec v1.APIServiceSpec | The group, the version and the server.
  service 1 apiregistration.ServiceReference | The service of another API server; without it, this server.
  group 2 string | The group.
  version 3 string | The version.
  insecureSkipTLSVerify 4 bool | Whether the other server's certificate is not checked.
  caBundle 5 bytes | Authorities that may have signed it.
  groupPriorityMinimum 7 int32! required | The place of the group among all groups; higher comes first.
  versionPriority 8 int32! required | The place of the version in its group; higher comes first.
apiregistration.ServiceReference v1.ServiceReference | A service.
  namespace 1 string | Its namespace.
  name 2 string | Its name.
  port 3 int32* | Its port.
apiregistration.APIServiceStatus v1.APIServiceStatus | Whether it is available.
  conditions 1 []apiregistration.APIServiceCondition merge=type map=type | The conditions.
apiregistration.APIServiceCondition v1.APIServiceCondition | A condition of an APIService.
  type 1 string! required | Its type, such as Available.
  status 2 string! required | True, False or Unknown.
  lastTransitionTime 3 Time! | When it changed last.
  reason 4 string | One word for machines.
  message 5 string | A sentence for people.
"""
