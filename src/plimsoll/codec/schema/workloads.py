"""apps/v1, batch/v1, policy/v1 and metrics."""

TABLE = """
apps.ReplicaSet v1.ReplicaSet | A number of pods that are all alike.
  metadata 1 meta.ObjectMeta! | Name, labels and other metadata.
  spec 2 apps.ReplicaSetSpec! | What is wanted.
  status 3 apps.ReplicaSetStatus! | What there is.
apps.ReplicaSetSpec v1.ReplicaSetSpec | What is wanted.
  replicas 1 int32* | How many pods. Default 1.
  minReadySeconds 4 int32 | Seconds a pod must be ready to count as available.
  selector 2 meta.LabelSelector*! required | The pods that belong to it.
  template 3 core.PodTemplateSpec! | The pods to make.
apps.ReplicaSetStatus v1.ReplicaSetStatus | What there is.
  replicas 1 int32! required | Pods that belong to it.
  fullyLabeledReplicas 2 int32 | Those that have all labels of the template.
  readyReplicas 4 int32 | Those that are ready.
  availableReplicas 5 int32 | Those that are available.
  terminatingReplicas 7 int32* | Those that are ending.
  observedGeneration 3 int64 | Generation of the spec that was acted on.
  conditions 6 []apps.ReplicaSetCondition merge=type map=type | Its conditions.
apps.ReplicaSetCondition v1.ReplicaSetCondition | One aspect of its state.
  type 1 string/v1.ReplicaSetConditionType! required | Name of the condition.
  status 2 string/v1.ConditionStatus! required | True, False or Unknown.
  lastTransitionTime 3 Time! | When the status last changed.
  reason 4 string | One word for the last change.
  message 5 string | The same in a sentence.
apps.Deployment v1.Deployment | Pods that are replaced step by step when their template changes.
  metadata 1 meta.ObjectMeta! | Name, labels and other metadata.
  spec 2 apps.DeploymentSpec! | What is wanted.
  status 3 apps.DeploymentStatus! | What there is.
apps.DeploymentSpec v1.DeploymentSpec | What is wanted.
  replicas 1 int32* | How many pods. Default 1.
  selector 2 meta.LabelSelector*! required | The pods that belong to it.
  template 3 core.PodTemplateSpec! required | The pods to make.
  strategy 4 apps.DeploymentStrategy! retainKeys | How pods are replaced.
  minReadySeconds 5 int32 | Seconds a pod must be ready to count as available.
  revisionHistoryLimit 6 int32* | Old replica sets to keep. Default 10.
  paused 7 bool | Whether a change of the template waits.
  progressDeadlineSeconds 9 int32* | Seconds without progress that count as failure. Default 600.
apps.DeploymentStrategy v1.DeploymentStrategy | How pods are replaced.
  type 1 string/v1.DeploymentStrategyType | Recreate or RollingUpdate.
  rollingUpdate 2 apps.RollingUpdateDeployment | For RollingUpdate.
apps.RollingUpdateDeployment v1.RollingUpdateDeployment | How fast pods are replaced.
  maxUnavailable 1 IntOrString* | Pods that may be missing. Default 25%.
  maxSurge 2 IntOrString* | Pods that may be too many. Default 25%.
apps.DeploymentStatus v1.DeploymentStatus | What there is.
  observedGeneration 1 int64 | Generation of the spec that was acted on.
  replicas 2 int32 | Pods that belong to it.
  updatedReplicas 3 int32 | Those made from the newest template.
  readyReplicas 7 int32 | Those that are ready.
  availableReplicas 4 int32 | Those that are available.
  unavailableReplicas 5 int32 | Those that are missing.
  terminatingReplicas 9 int32* | Those that are ending.
  conditions 6 []apps.DeploymentCondition merge=type map=type | Its conditions.
  collisionCount 8 int32* | How often a name was taken.
apps.DeploymentCondition v1.DeploymentCondition | One aspect of its state.
  type 1 string/v1.DeploymentConditionType! required | Available, Progressing or ReplicaFailure.
  status 2 string/v1.ConditionStatus! required | True, False or Unknown.
  lastUpdateTime 6 Time! | When it was last written.
  lastTransitionTime 7 Time! | When the status last changed.
  reason 4 string | One word for the last change.
  message 5 string | The same in a sentence.
batch.Job v1.Job | Pods that run until their work is done.
  metadata 1 meta.ObjectMeta! | Name, labels and other metadata.
  spec 2 batch.JobSpec! | What is wanted.
  status 3 batch.JobStatus! | How far it is.
batch.JobSpec v1.JobSpec | What is wanted.
  parallelism 1 int32* | How many pods at once. Default 1.
  completions 2 int32* | How many pods must succeed.
  activeDeadlineSeconds 3 int64* | Seconds after its start when the job is ended as failed.
  podFailurePolicy 11 batch.PodFailurePolicy | What to do about failed pods.
  successPolicy 16 batch.SuccessPolicy | When the job counts as done early.
  backoffLimit 7 int32* | Failures before the job fails. Default 6.
  backoffLimitPerIndex 12 int32* | The same for each index.
  maxFailedIndexes 13 int32* | Indexes that may fail.
  selector 4 meta.LabelSelector | The pods that belong to it; made by the server.
  manualSelector 5 bool* | Whether the selector is the user's own.
  template 6 core.PodTemplateSpec! required | The pods to make.
  ttlSecondsAfterFinished 8 int32* | Seconds after its end when the job is removed.
  completionMode 9 string/v1.CompletionMode* | NonIndexed or Indexed.
  suspend 10 bool* | Whether no pods are to run.
  podReplacementPolicy 14 string/v1.PodReplacementPolicy* | TerminatingOrFailed or Failed.
  managedBy 15 string* | The controller that runs the job.
batch.PodFailurePolicy v1.PodFailurePolicy | What to do about failed pods.
  rules 1 []batch.PodFailurePolicyRule! required | The first rule that matches counts.
batch.PodFailurePolicyRule v1.PodFailurePolicyRule | One rule.
  action 1 string/v1.PodFailurePolicyAction! required | FailJob, FailIndex, Ignore or Count.
  onExitCodes 2 batch.PodFailurePolicyOnExitCodesRequirement | Exit codes that match.
  onPodConditions 3 []batch.PodFailurePolicyOnPodConditionsPattern | Conditions that match.
batch.PodFailurePolicyOnExitCodesRequirement v1.PodFailurePolicyOnExitCodesRequirement | Exit codes.
  containerName 1 string* | The container; none means any.
  operator 2 string/v1.PodFailurePolicyOnExitCodesOperator! required | In or NotIn.
  values 3 []int32! set required | The codes.
batch.PodFailurePolicyOnPodConditionsPattern v1.PodFailurePolicyOnPodConditionsPattern | A condition.
  type 1 string/v1.PodConditionType! required | Its type.
  status 2 string/v1.ConditionStatus! | Its status.
batch.SuccessPolicy v1.SuccessPolicy | When a job counts as done early.
  rules 1 []batch.SuccessPolicyRule! required | One rule that holds is enough.
batch.SuccessPolicyRule v1.SuccessPolicyRule | One rule.
  succeededIndexes 1 string* | Indexes that must succeed.
  succeededCount 2 int32* | How many of them.
batch.JobStatus v1.JobStatus | How far a job is.
  conditions 1 []batch.JobCondition merge=type | Its conditions.
  startTime 2 Time* | When it started.
  completionTime 3 Time* | When it was done.
  active 4 int32 | Pods that run or wait.
  succeeded 5 int32 | Pods that succeeded.
  failed 6 int32 | Pods that failed.
  terminating 11 int32* | Pods that are ending.
  completedIndexes 7 string | Indexes that are done.
  failedIndexes 10 string* | Indexes that have failed.
  uncountedTerminatedPods 8 batch.UncountedTerminatedPods | Pods that have ended but are not counted yet.
  ready 9 int32* | Pods that are ready.
batch.JobCondition v1.JobCondition | One aspect of a job's state.
  type 1 string/v1.JobConditionType! required | Complete, Failed, Suspended, …
  status 2 string/v1.ConditionStatus! required | True, False or Unknown.
  lastProbeTime 3 Time! | When it was last checked.
  lastTransitionTime 4 Time! | When the status last changed.
  reason 5 string | One word for the last change.
  message 6 string | The same in a sentence.
batch.UncountedTerminatedPods v1.UncountedTerminatedPods | Pods that are not counted yet.
  succeeded 1 []string/types.UID set | That succeeded.
  failed 2 []string/types.UID set | That failed.
policy.PodDisruptionBudget v1.PodDisruptionBudget | How many of some pods may be evicted at once.
  metadata 1 meta.ObjectMeta! | Name, labels and other metadata.
  spec 2 policy.PodDisruptionBudgetSpec! | What is allowed.
  status 3 policy.PodDisruptionBudgetStatus! | What there is.
policy.PodDisruptionBudgetSpec v1.PodDisruptionBudgetSpec | What is allowed.
  minAvailable 1 IntOrString* | Pods that must stay, as a number or a share.
  selector 2 meta.LabelSelector replace | The pods.
  maxUnavailable 3 IntOrString* | Or pods that may be missing.
  unhealthyPodEvictionPolicy 4 string/v1.UnhealthyPodEvictionPolicyType* | IfHealthyBudget or AlwaysAllow.
policy.PodDisruptionBudgetStatus v1.PodDisruptionBudgetStatus | What there is.
  observedGeneration 1 int64 | Generation of the spec that was acted on.
  disruptedPods 2 {Time} | Pods whose eviction is under way.
  disruptionsAllowed 3 int32! required | How many may be evicted now.
  currentHealthy 4 int32! required | Pods that are healthy.
  desiredHealthy 5 int32! required | Pods that must be.
  expectedPods 6 int32! required | Pods that count.
  conditions 7 []meta.Condition merge=type map=type | Its conditions.
policy.Eviction v1.Eviction | Asks to evict a pod.
  metadata 1 meta.ObjectMeta! | Name of the pod.
  deleteOptions 2 meta.DeleteOptions | How to delete it.
metrics.PodMetrics v1beta1.PodMetrics | What a pod uses.
  metadata 1 meta.ObjectMeta! | Name of the pod.
  timestamp 2 Time! required | When it was measured.
  window 3 Duration! required | Over which time.
  containers 4 []metrics.ContainerMetrics! required | Each container.
metrics.ContainerMetrics v1beta1.ContainerMetrics | What a container uses.
  name 1 string! required | Its name.
  usage 2 {Quantity}/v1.ResourceList! required | What it uses.
metrics.NodeMetrics v1beta1.NodeMetrics | What a node uses.
  metadata 1 meta.ObjectMeta! | Name of the node.
  timestamp 2 Time! required | When it was measured.
  window 3 Duration! required | Over which time.
  usage 4 {Quantity}/v1.ResourceList! required | What it uses.
"""
