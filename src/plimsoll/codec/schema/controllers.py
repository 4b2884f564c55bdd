"""StatefulSets, DaemonSets, ControllerRevisions, CronJobs, ReplicationControllers and PodTemplates."""

TABLE = """
apps.ControllerRevision v1.ControllerRevision | One version of a pod template, kept for a rollback.
  metadata 1 meta.ObjectMeta! | Name, labels and other metadata.
  data 2 FieldsV1/runtime.RawExtension | The version, as the controller wrote it.
  revision 3 int64! required | Its number.
apps.DaemonSet v1.DaemonSet | One pod on every node that fits.
  metadata 1 meta.ObjectMeta! | Name, labels and other metadata.
  spec 2 apps.DaemonSetSpec! | What is wanted.
  status 3 apps.DaemonSetStatus! | What there is.
apps.DaemonSetSpec v1.DaemonSetSpec | What is wanted.
  selector 1 meta.LabelSelector*! required | The pods that belong to it.
  template 2 core.PodTemplateSpec! required | The pods to make.
  updateStrategy 3 apps.DaemonSetUpdateStrategy! | How pods are replaced.
  minReadySeconds 4 int32 | Seconds a pod must be ready to count as available.
  revisionHistoryLimit 6 int32* | Old revisions to keep. Default 10.
apps.DaemonSetUpdateStrategy v1.DaemonSetUpdateStrategy | How pods are replaced.
  type 1 string/v1.DaemonSetUpdateStrategyType | RollingUpdate or OnDelete.
  rollingUpdate 2 apps.RollingUpdateDaemonSet | For RollingUpdate.
apps.RollingUpdateDaemonSet v1.RollingUpdateDaemonSet | How fast pods are replaced.
  maxUnavailable 1 IntOrString* | Pods that may be missing. Default 1.
  maxSurge 2 IntOrString* | Nodes that may have an old and a new pod. Default 0.
apps.DaemonSetStatus v1.DaemonSetStatus | What there is.
  currentNumberScheduled 1 int32! required | Nodes that run a pod and should.
  numberMisscheduled 2 int32! required | Nodes that run a pod and should not.
  desiredNumberScheduled 3 int32! required | Nodes that should run a pod.
  numberReady 4 int32! required | Nodes whose pod is ready.
  observedGeneration 5 int64 | Generation of the spec that was acted on.
  updatedNumberScheduled 6 int32 | Nodes whose pod has the newest template.
  numberAvailable 7 int32 | Nodes whose pod is available.
  numberUnavailable 8 int32 | Nodes whose pod is missing or not available.
  collisionCount 9 int32* | How often a name was taken.
  conditions 10 []apps.DaemonSetCondition merge=type map=type | Its conditions.
apps.DaemonSetCondition v1.DaemonSetCondition | One aspect of its state.
  type 1 string/v1.DaemonSetConditionType! required | Name of the condition.
  status 2 string/v1.ConditionStatus! required | True, False or Unknown.
  lastTransitionTime 3 Time! | When the status last changed.
  reason 4 string | One word for the last change.
  message 5 string | The same in a sentence.
apps.StatefulSet v1.StatefulSet | Pods with names and an order.
  metadata 1 meta.ObjectMeta! | Name, labels and other metadata.
  spec 2 apps.StatefulSetSpec! | What is wanted.
  status 3 apps.StatefulSetStatus! | What there is.
apps.StatefulSetSpec v1.StatefulSetSpec | What is wanted.
  replicas 1 int32* | How many pods. Default 1.
  selector 2 meta.LabelSelector*! required | The pods that belong to it.
  template 3 core.PodTemplateSpec! required | The pods to make.
  volumeClaimTemplates 4 []core.PersistentVolumeClaim | Claims of each pod.
  serviceName 5 string! | The service that governs the pods' names.
  podManagementPolicy 6 string/v1.PodManagementPolicyType | OrderedReady or Parallel.
  updateStrategy 7 apps.StatefulSetUpdateStrategy! | How pods are replaced.
  revisionHistoryLimit 8 int32* | Old revisions to keep. Default 10.
  minReadySeconds 9 int32 | Seconds a pod must be ready to count as available.
  persistentVolumeClaimRetentionPolicy 10 apps.StatefulSetPersistentVolumeClaimRetentionPolicy | What becomes of claims.
  ordinals 11 apps.StatefulSetOrdinals | How pods are numbered.
apps.StatefulSetUpdateStrategy v1.StatefulSetUpdateStrategy | How pods are replaced.
  type 1 string/v1.StatefulSetUpdateStrategyType | RollingUpdate or OnDelete.
  rollingUpdate 2 apps.RollingUpdateStatefulSetStrategy | For RollingUpdate.
apps.RollingUpdateStatefulSetStrategy v1.RollingUpdateStatefulSetStrategy | Which pods are replaced.
  partition 1 int32* | Pods with this ordinal and above are replaced. Default 0.
  maxUnavailable 2 IntOrString* | Pods that may be missing. Default 1.
apps.StatefulSetPersistentVolumeClaimRetentionPolicy v1.StatefulSetPersistentVolumeClaimRetentionPolicy | Of claims.
  whenDeleted 1 string/v1.PersistentVolumeClaimRetentionPolicyType | Retain or Delete, when the set is deleted.
  whenScaled 2 string/v1.PersistentVolumeClaimRetentionPolicyType | Retain or Delete, when the set shrinks.
apps.StatefulSetOrdinals v1.StatefulSetOrdinals | How pods are numbered.
  start 1 int32! | The first number. Default 0.
apps.StatefulSetStatus v1.StatefulSetStatus | What there is.
  observedGeneration 1 int64 | Generation of the spec that was acted on.
  replicas 2 int32! required | Pods that belong to it.
  readyReplicas 3 int32 | Those that are ready.
  currentReplicas 4 int32 | Those of the current revision.
  updatedReplicas 5 int32 | Those of the update revision.
  currentRevision 6 string | The revision before the update.
  updateRevision 7 string | The revision after the update.
  collisionCount 9 int32* | How often a name was taken.
  conditions 10 []apps.StatefulSetCondition merge=type map=type | Its conditions.
  availableReplicas 11 int32! | Those that are available.
apps.StatefulSetCondition v1.StatefulSetCondition | One aspect of its state.
  type 1 string/v1.StatefulSetConditionType! required | Name of the condition.
  status 2 string/v1.ConditionStatus! required | True, False or Unknown.
  lastTransitionTime 3 Time! | When the status last changed.
  reason 4 string | One word for the last change.
  message 5 string | The same in a sentence.
core.PersistentVolumeClaim v1.PersistentVolumeClaim | A claim for storage.
  kind - string | Kind of the object.
  apiVersion - string | Group and version of the kind.
  metadata 1 meta.ObjectMeta! | Name, labels and other metadata.
  spec 2 core.PersistentVolumeClaimSpec! | What is claimed.
  status 3 core.PersistentVolumeClaimStatus! | What there is.
batch.CronJob v1.CronJob | Jobs at times of a schedule.
  metadata 1 meta.ObjectMeta! | Name, labels and other metadata.
  spec 2 batch.CronJobSpec! | What is wanted.
  status 3 batch.CronJobStatus! | What there is.
batch.CronJobSpec v1.CronJobSpec | What is wanted.
  schedule 1 string! required | The times, in the form of cron.
  timeZone 8 string* | The time zone of the schedule.
  startingDeadlineSeconds 2 int64* | Seconds after its time when a job is no longer started.
  concurrencyPolicy 3 string/v1.ConcurrencyPolicy | Allow, Forbid or Replace.
  suspend 4 bool* | Whether no more jobs are started.
  jobTemplate 5 batch.JobTemplateSpec! required | The jobs to make.
  successfulJobsHistoryLimit 6 int32* | Successful jobs to keep. Default 3.
  failedJobsHistoryLimit 7 int32* | Failed jobs to keep. Default 1.
batch.JobTemplateSpec v1.JobTemplateSpec | The jobs that a cron job makes.
  metadata 1 meta.ObjectMeta! | Labels and annotations.
  spec 2 batch.JobSpec! | What a job is to do.
batch.CronJobStatus v1.CronJobStatus | What there is.
  active 1 []core.ObjectReference atomic | Jobs that run.
  lastScheduleTime 4 Time* | When a job was last started.
  lastSuccessfulTime 5 Time* | When a job last completed.
core.ReplicationController v1.ReplicationController | A number of pods that are all alike.
  metadata 1 meta.ObjectMeta! | Name, labels and other metadata.
  spec 2 core.ReplicationControllerSpec! | What is wanted.
  status 3 core.ReplicationControllerStatus! | What there is.
core.ReplicationControllerSpec v1.ReplicationControllerSpec | What is wanted.
  replicas 1 int32* | How many pods. Default 1.
  minReadySeconds 4 int32 | Seconds a pod must be ready to count as available.
  selector 2 {string} atomic | Labels of the pods that belong to it.
  template 3 core.PodTemplateSpec | The pods to make.
core.ReplicationControllerStatus v1.ReplicationControllerStatus | What there is.
  replicas 1 int32! required | Pods that belong to it.
  fullyLabeledReplicas 2 int32 | Those that have all labels of the template.
  readyReplicas 4 int32 | Those that are ready.
  availableReplicas 5 int32 | Those that are available.
  observedGeneration 3 int64 | Generation of the spec that was acted on.
  conditions 6 []core.ReplicationControllerCondition merge=type map=type | Its conditions.
core.ReplicationControllerCondition v1.ReplicationControllerCondition | One aspect of its state.
  type 1 string/v1.ReplicationControllerConditionType! required | Name of the condition.
  status 2 string/v1.ConditionStatus! required | True, False or Unknown.
  lastTransitionTime 3 Time! | When the status last changed.
  reason 4 string | One word for the last change.
  message 5 string | The same in a sentence.
core.PodTemplate v1.PodTemplate | A pod template as an object of its own.
  metadata 1 meta.ObjectMeta! | Name, labels and other metadata.
  template 2 core.PodTemplateSpec! | The pods to make.
"""
