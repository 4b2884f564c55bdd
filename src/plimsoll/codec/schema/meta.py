"""apimachinery: metadata, selectors, conditions, delete options."""

# ruff: noqa: E501 (one line per field)

TABLE = """
meta.ObjectMeta v1.ObjectMeta | What every object carries: its name, its identity and its labels.
  name 1 string | Name of the object, unique among its kind in its namespace.
  generateName 2 string | A prefix; the server makes a unique name of it when no name is set.
  namespace 3 string | The namespace the object lives in.
  selfLink 4 string | No longer filled in.
  uid 5 string/types.UID | Identity of this very object, set by the server; never used twice.
  resourceVersion 6 string | Version of the object as clients see it: send it back to update only what you have read.
  generation 7 int64 | Counts changes of the wanted state.
  creationTimestamp 8 Time | CreationTimestamp is a timestamp: when the server created the object.
  deletionTimestamp 9 Time* | Set while the object is being deleted: when it is to be gone.
  deletionGracePeriodSeconds 10 int64* | Seconds between the request to delete and the removal.
  labels 11 {string} | Keys and values to select objects by.
  annotations 12 {string} | Keys and values for tools, not for selection.
  ownerReferences 13 []meta.OwnerReference merge=uid map=uid | Objects this one depends on; when all are gone it is collected.
  finalizers 14 []string merge set | The object stays until each of these has been removed.
  managedFields 17 []meta.ManagedFieldsEntry* | Which manager owns which fields.
meta.OwnerReference v1.OwnerReference atomic | An object that owns another.
  apiVersion 5 string! required | API version of the owner.
  kind 1 string! required | Kind of the owner.
  name 3 string! required | Name of the owner.
  uid 4 string/types.UID! required | Identity of the owner.
  controller 6 bool* | Whether the owner is the managing controller.
  blockOwnerDeletion 7 bool* | Whether a foreground deletion of the owner waits for this object.
meta.ManagedFieldsEntry v1.ManagedFieldsEntry | The fields that one manager set by one operation.
  manager 1 string | Name of the manager.
  operation 2 string/v1.ManagedFieldsOperationType | Apply or Update.
  apiVersion 3 string | Version the field names belong to.
  time 4 Time* | When the manager last changed a field.
  fieldsType 6 string | Always FieldsV1.
  fieldsV1 7 FieldsV1 | The set of fields.
  subresource 8 string | Subresource through which the fields were written.
meta.LabelSelector v1.LabelSelector atomic | Selects objects by labels; all requirements must hold.
  matchLabels 1 {string} | Labels that must have exactly these values.
  matchExpressions 2 []meta.LabelSelectorRequirement | Further requirements.
meta.LabelSelectorRequirement v1.LabelSelectorRequirement | One requirement on a label.
  key 1 string! required | The label.
  operator 2 string/v1.LabelSelectorOperator! required | In, NotIn, Exists or DoesNotExist.
  values 3 []string | Values for In and NotIn.
meta.FieldSelectorRequirement v1.FieldSelectorRequirement | One requirement on a field.
  key 1 string! required | The field.
  operator 2 string/v1.FieldSelectorOperator! required | In, NotIn, Exists or DoesNotExist.
  values 3 []string | Values for In and NotIn.
meta.Condition v1.Condition | One aspect of an object's state.
  type 1 string! required | Name of the condition.
  status 2 string/v1.ConditionStatus! required | True, False or Unknown.
  observedGeneration 3 int64 | Generation the condition was judged on.
  lastTransitionTime 4 Time! required | When the status last changed.
  reason 5 string! required | One word for the last change.
  message 6 string! required | The same in a sentence.
meta.DeleteOptions v1.DeleteOptions | How to delete.
  kind - string | DeleteOptions.
  apiVersion - string | v1 or a group's version.
  gracePeriodSeconds 1 int64* | Seconds to end; 0 removes at once.
  preconditions 2 meta.Preconditions | What must hold, else nothing is deleted.
  orphanDependents 3 bool* | Replaced by propagationPolicy.
  propagationPolicy 4 string/v1.DeletionPropagation* | Orphan, Background or Foreground.
  dryRun 5 []string | All: check, but delete nothing.
  ignoreStoreReadErrorWithClusterBreakingPotential 6 bool* | Delete even an object that cannot be read.
meta.Preconditions v1.Preconditions | What must hold before a deletion.
  uid 1 string/types.UID* | The object must have this identity.
  resourceVersion 2 string* | The object must have this version.
"""
