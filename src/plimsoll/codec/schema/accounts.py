"""Secrets, roles and their bindings, and the requests of authentication, authorization and certificates."""

# ruff: noqa: E501 (one line per field)

TABLE = """
core.Secret v1.Secret | Data that is to be protected, such as passwords.
  metadata 1 meta.ObjectMeta! | Name, labels and other metadata.
  immutable 5 bool* | Whether the data may never change again.
  data 2 {bytes} | Bytes, in base64.
  stringData 4 {string} | Texts, which are written to data and never read.
  type 3 string/v1.SecretType | What the data is for.
rbac.Role v1.Role | What may be done in a namespace.
  metadata 1 meta.ObjectMeta! | Name, labels and other metadata.
  rules 2 []rbac.PolicyRule! | The rules; one that matches is enough.
rbac.ClusterRole v1.ClusterRole | What may be done in the cluster, or in each namespace that binds it.
  metadata 1 meta.ObjectMeta! | Name, labels and other metadata.
  rules 2 []rbac.PolicyRule! | The rules; one that matches is enough.
  aggregationRule 3 rbac.AggregationRule | Where the rules come from, if not from here.
rbac.PolicyRule v1.PolicyRule | Verbs and what they may be used on.
  verbs 1 []string! required | The verbs; * means all.
  apiGroups 2 []string | The groups; "" is the core group, * means all.
  resources 3 []string | The resources, such as pods or pods/log; * means all.
  resourceNames 4 []string | Only objects with these names; none means all.
  nonResourceURLs 5 []string | Paths that are not resources; * at the end means everything below.
rbac.AggregationRule v1.AggregationRule | Which roles are joined.
  clusterRoleSelectors 1 []meta.LabelSelector | A role that one of them selects is part of this one.
rbac.RoleBinding v1.RoleBinding | Grants a role in a namespace.
  metadata 1 meta.ObjectMeta! | Name, labels and other metadata.
  subjects 2 []rbac.Subject | The users, groups and service accounts that get it.
  roleRef 3 rbac.RoleRef! required | The role. Immutable.
rbac.ClusterRoleBinding v1.ClusterRoleBinding | Grants a role in the whole cluster.
  metadata 1 meta.ObjectMeta! | Name, labels and other metadata.
  subjects 2 []rbac.Subject | The users, groups and service accounts that get it.
  roleRef 3 rbac.RoleRef! required | The role. Immutable.
rbac.Subject v1.Subject atomic | A user, a group or a service account.
  kind 1 string! required | User, Group or ServiceAccount.
  apiGroup 2 string | Its group; empty for a service account.
  name 3 string! required | Its name.
  namespace 4 string | Namespace of a service account.
rbac.RoleRef v1.RoleRef atomic | The role of a binding.
  apiGroup 1 string! required | rbac.authorization.k8s.io.
  kind 2 string! required | Role or ClusterRole.
  name 3 string! required | Its name.
authentication.TokenRequest v1.TokenRequest | Asks for a token of a service account.
  metadata 1 meta.ObjectMeta! | Name of the service account.
  spec 2 authentication.TokenRequestSpec! required | Which token.
  status 3 authentication.TokenRequestStatus! | The token.
authentication.TokenRequestSpec v1.TokenRequestSpec | Which token.
  audiences 1 []string! required | Who should accept it; empty means the API server.
  expirationSeconds 4 int64* | How long it should last.
  boundObjectRef 3 authentication.BoundObjectReference | The token is valid as long as this object exists.
authentication.BoundObjectReference v1.BoundObjectReference | An object that a token depends on.
  kind 1 string | Pod, Secret or Node.
  apiVersion 2 string | Its API version.
  name 3 string | Its name.
  uid 4 string/types.UID | Its identity.
authentication.TokenRequestStatus v1.TokenRequestStatus | The token.
  token 1 string! required | The token itself.
  expirationTimestamp 2 Time! required | When it expires.
authentication.TokenReview v1.TokenReview | Asks whose token it is.
  metadata 1 meta.ObjectMeta! | Not used.
  spec 2 authentication.TokenReviewSpec! required | The question.
  status 3 authentication.TokenReviewStatus! | The answer.
authentication.TokenReviewSpec v1.TokenReviewSpec | The question.
  token 1 string | The token.
  audiences 2 []string | Who wants to accept it; empty means the API server.
authentication.TokenReviewStatus v1.TokenReviewStatus | The answer.
  authenticated 1 bool | Whether it is a known user's.
  user 2 authentication.UserInfo! | The user.
  audiences 4 []string | Which of the audiences may accept it.
  error 3 string | Why it could not be checked.
authorization.SubjectAccessReview v1.SubjectAccessReview | Asks whether a user may do something.
  metadata 1 meta.ObjectMeta! | Not used.
  spec 2 authorization.SubjectAccessReviewSpec! required | The question.
  status 3 authorization.SubjectAccessReviewStatus! | The answer.
authorization.LocalSubjectAccessReview v1.LocalSubjectAccessReview | Asks whether a user may do something in a namespace.
  metadata 1 meta.ObjectMeta! | The namespace.
  spec 2 authorization.SubjectAccessReviewSpec! required | The question.
  status 3 authorization.SubjectAccessReviewStatus! | The answer.
authorization.SubjectAccessReviewSpec v1.SubjectAccessReviewSpec | The question.
  resourceAttributes 1 authorization.ResourceAttributes | About a resource.
  nonResourceAttributes 2 authorization.NonResourceAttributes | About a path.
  user 3 string | The user.
  groups 4 []string | The user's groups.
  extra 5 {[]string} | Further facts about the user.
  uid 6 string | Identity of the user.
authorization.SelfSubjectAccessReview v1.SelfSubjectAccessReview | Asks whether oneself may do something.
  metadata 1 meta.ObjectMeta! | Not used.
  spec 2 authorization.SelfSubjectAccessReviewSpec! required | The question.
  status 3 authorization.SubjectAccessReviewStatus! | The answer.
authorization.SelfSubjectAccessReviewSpec v1.SelfSubjectAccessReviewSpec | The question.
  resourceAttributes 1 authorization.ResourceAttributes | About a resource.
  nonResourceAttributes 2 authorization.NonResourceAttributes | About a path.
authorization.ResourceAttributes v1.ResourceAttributes | What is to be done with which resource.
  namespace 1 string | The namespace; empty means all.
  verb 2 string | The verb, such as get.
  group 3 string | The group.
  version 4 string | The version.
  resource 5 string | The resource, such as pods.
  subresource 6 string | The subresource.
  name 7 string | The name; empty means all.
  fieldSelector 8 authorization.FieldSelectorAttributes | Only objects with these fields.
  labelSelector 9 authorization.LabelSelectorAttributes | Only objects with these labels.
authorization.FieldSelectorAttributes v1.FieldSelectorAttributes | A field selector.
  rawSelector 1 string | As a text.
  requirements 2 []meta.FieldSelectorRequirement | In parts.
authorization.LabelSelectorAttributes v1.LabelSelectorAttributes | A label selector.
  rawSelector 1 string | As a text.
  requirements 2 []meta.LabelSelectorRequirement | In parts.
authorization.NonResourceAttributes v1.NonResourceAttributes | A path.
  path 1 string | The path.
  verb 2 string | The verb.
authorization.SubjectAccessReviewStatus v1.SubjectAccessReviewStatus | The answer.
  allowed 1 bool! required | Whether it is allowed.
  denied 4 bool | Whether it is denied outright.
  reason 2 string | Why.
  evaluationError 3 string | What went wrong on the way.
authorization.SelfSubjectRulesReview v1.SelfSubjectRulesReview | Asks what oneself may do in a namespace.
  metadata 1 meta.ObjectMeta! | Not used.
  spec 2 authorization.SelfSubjectRulesReviewSpec! required | The question.
  status 3 authorization.SubjectRulesReviewStatus! | The answer.
authorization.SelfSubjectRulesReviewSpec v1.SelfSubjectRulesReviewSpec | The question.
  namespace 1 string | The namespace.
authorization.SubjectRulesReviewStatus v1.SubjectRulesReviewStatus | The answer.
  resourceRules 1 []authorization.ResourceRule! required | What may be done with resources.
  nonResourceRules 2 []authorization.NonResourceRule! required | What may be done with paths.
  incomplete 3 bool! required | Whether there is more than rules can say.
  evaluationError 4 string | What that is.
authorization.ResourceRule v1.ResourceRule | Verbs and what they may be used on.
  verbs 1 []string! required | The verbs; * means all.
  apiGroups 2 []string | The groups.
  resources 3 []string | The resources, with their subresources.
  resourceNames 4 []string | Only objects with these names.
authorization.NonResourceRule v1.NonResourceRule | Verbs and the paths they may be used on.
  verbs 1 []string! required | The verbs; * means all.
  nonResourceURLs 2 []string | The paths.
authentication.SelfSubjectReview v1.SelfSubjectReview | Asks who one is.
  metadata 1 meta.ObjectMeta! | Not used.
  status 2 authentication.SelfSubjectReviewStatus! | The answer.
authentication.SelfSubjectReviewStatus v1.SelfSubjectReviewStatus | The answer.
  userInfo 1 authentication.UserInfo! | The user.
authentication.UserInfo v1.UserInfo | A user.
  username 1 string | Name.
  uid 2 string | Identity.
  groups 3 []string | Groups.
  extra 4 {[]string} | Further facts.
certificates.ClusterTrustBundle v1.ClusterTrustBundle | Certificates of authorities that programs may trust.
  metadata 1 meta.ObjectMeta! | Name, labels and other metadata.
  spec 2 certificates.ClusterTrustBundleSpec! | The certificates, and whose they are.
certificates.ClusterTrustBundleSpec v1.ClusterTrustBundleSpec | The certificates, and whose they are.
  signerName 1 string | The signer whose certificates they are; none if absent.
  trustBundle 2 string! required | The certificates, as PEM.
certificates.CertificateSigningRequest v1.CertificateSigningRequest | Asks for a certificate.
  metadata 1 meta.ObjectMeta! | Name and other metadata.
  spec 2 certificates.CertificateSigningRequestSpec! | What is requested, and by whom.
  status 3 certificates.CertificateSigningRequestStatus! | The answer.
certificates.CertificateSigningRequestSpec v1.CertificateSigningRequestSpec | What is requested, and by whom.
  request 1 bytes! required | The request itself, PKCS#10 in PEM.
  signerName 7 string! required | Who should sign it.
  expirationSeconds 8 int32* | How long the certificate should last.
  usages 5 []string/v1.KeyUsage | What the key is for.
  username 2 string | Who asks; written by the server.
  uid 3 string | Identity of who asks; written by the server.
  groups 4 []string | Groups of who asks; written by the server.
  extra 6 {[]string} | Further facts about who asks.
certificates.CertificateSigningRequestStatus v1.CertificateSigningRequestStatus | The answer.
  conditions 1 []certificates.CertificateSigningRequestCondition map=type | Approved, Denied or Failed.
  certificate 2 bytes | The certificate in PEM.
certificates.CertificateSigningRequestCondition v1.CertificateSigningRequestCondition | A word about the answer.
  type 1 string/v1.RequestConditionType! required | Approved, Denied or Failed.
  status 6 string/v1.ConditionStatus! required | True, False or Unknown.
  reason 2 string | One word for it.
  message 3 string | The same in a sentence.
  lastUpdateTime 4 Time! | When it was last changed.
  lastTransitionTime 5 Time! | When the status last changed.
"""
