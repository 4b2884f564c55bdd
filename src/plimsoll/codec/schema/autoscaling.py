"""autoscaling/v1 and v2: scales and horizontal pod autoscalers. `autoscaling2` stands for v2."""

TABLE = """
autoscaling.Scale v1.Scale | The number of pods of a workload.
  metadata 1 meta.ObjectMeta! | Name of the workload.
  spec 2 autoscaling.ScaleSpec! | What is wanted.
  status 3 autoscaling.ScaleStatus! | What there is.
autoscaling.ScaleSpec v1.ScaleSpec | What is wanted.
  replicas 1 int32 | How many pods.
autoscaling.ScaleStatus v1.ScaleStatus | What there is.
  replicas 1 int32! required | How many pods there are.
  selector 2 string | The pods, as a text.
autoscaling.HorizontalPodAutoscaler v1.HorizontalPodAutoscaler | How many pods a workload has, by their CPU usage.
  metadata 1 meta.ObjectMeta! | Name, labels and other metadata.
  spec 2 autoscaling.HorizontalPodAutoscalerSpec! | The workload and its bounds.
  status 3 autoscaling.HorizontalPodAutoscalerStatus! | What its controller reports.
autoscaling.HorizontalPodAutoscalerSpec v1.HorizontalPodAutoscalerSpec | The workload and its bounds.
  scaleTargetRef 1 autoscaling.CrossVersionObjectReference! required | The workload.
  minReplicas 2 int32* | The fewest pods; 1 by default.
  maxReplicas 3 int32! required | The most pods.
  targetCPUUtilizationPercentage 4 int32* | Average CPU usage in percent of the requests.
autoscaling.CrossVersionObjectReference v1.CrossVersionObjectReference atomic | An object of the namespace.
  kind 1 string! required | Its kind.
  name 2 string! required | Its name.
  apiVersion 3 string | Its group and version.
autoscaling.HorizontalPodAutoscalerStatus v1.HorizontalPodAutoscalerStatus | What its controller reports.
  observedGeneration 1 int64* | The generation that it has seen.
  lastScaleTime 2 Time | When it last changed the number of pods.
  currentReplicas 3 int32! required | How many pods there are.
  desiredReplicas 4 int32! required | How many pods it wants.
  currentCPUUtilizationPercentage 5 int32* | Average CPU usage in percent of the requests.
autoscaling2.HorizontalPodAutoscaler v2.HorizontalPodAutoscaler | How many pods a workload has, by metrics.
  metadata 1 meta.ObjectMeta! | Name, labels and other metadata.
  spec 2 autoscaling2.HorizontalPodAutoscalerSpec! | The workload, its bounds and the metrics.
  status 3 autoscaling2.HorizontalPodAutoscalerStatus! | What its controller reports.
autoscaling2.HorizontalPodAutoscalerSpec v2.HorizontalPodAutoscalerSpec | The workload, its bounds and the metrics.
  scaleTargetRef 1 autoscaling2.CrossVersionObjectReference! required | The workload.
  minReplicas 2 int32* | The fewest pods; 1 by default.
  maxReplicas 3 int32! required | The most pods.
  metrics 4 []autoscaling2.MetricSpec | The metrics; the largest number of pods that one of them asks for counts.
  behavior 5 autoscaling2.HorizontalPodAutoscalerBehavior | How fast the number may change.
autoscaling2.CrossVersionObjectReference v2.CrossVersionObjectReference | An object of the namespace.
  kind 1 string! required | Its kind.
  name 2 string! required | Its name.
  apiVersion 3 string | Its group and version.
autoscaling2.MetricSpec v2.MetricSpec | A metric and its target.
  type 1 string/v2.MetricSourceType! required | ContainerResource, External, Object, Pods or Resource.
  object 2 autoscaling2.ObjectMetricSource | A metric of one object.
  pods 3 autoscaling2.PodsMetricSource | A metric of each pod.
  resource 4 autoscaling2.ResourceMetricSource | What the pods use of a resource.
  containerResource 7 autoscaling2.ContainerResourceMetricSource | What one container of each pod uses of a resource.
  external 5 autoscaling2.ExternalMetricSource | A metric from outside the cluster.
autoscaling2.ObjectMetricSource v2.ObjectMetricSource | A metric of one object.
  describedObject 1 autoscaling2.CrossVersionObjectReference! required | The object.
  target 2 autoscaling2.MetricTarget! required | The target.
  metric 3 autoscaling2.MetricIdentifier! required | The metric.
autoscaling2.PodsMetricSource v2.PodsMetricSource | A metric of each pod.
  metric 1 autoscaling2.MetricIdentifier! required | The metric.
  target 2 autoscaling2.MetricTarget! required | The target.
autoscaling2.ResourceMetricSource v2.ResourceMetricSource | What the pods use of a resource.
  name 1 string/v1.ResourceName! required | The resource.
  target 2 autoscaling2.MetricTarget! required | The target.
autoscaling2.ContainerResourceMetricSource v2.ContainerResourceMetricSource | What a container uses of a resource.
  name 1 string/v1.ResourceName! required | The resource.
  target 2 autoscaling2.MetricTarget! required | The target.
  container 3 string! required | Name of the container.
autoscaling2.ExternalMetricSource v2.ExternalMetricSource | A metric from outside the cluster.
  metric 1 autoscaling2.MetricIdentifier! required | The metric.
  target 2 autoscaling2.MetricTarget! required | The target.
autoscaling2.MetricIdentifier v2.MetricIdentifier | Names a metric.
  name 1 string! required | Its name.
  selector 2 meta.LabelSelector | Which of its series.
autoscaling2.MetricTarget v2.MetricTarget | The target of a metric.
  type 1 string/v2.MetricTargetType! required | Utilization, Value or AverageValue.
  value 2 Quantity* | The value.
  averageValue 3 Quantity* | The value for each pod.
  averageUtilization 4 int32* | The average in percent of the requests.
autoscaling2.HorizontalPodAutoscalerBehavior v2.HorizontalPodAutoscalerBehavior | How fast the number may change.
  scaleUp 1 autoscaling2.HPAScalingRules | Upwards.
  scaleDown 2 autoscaling2.HPAScalingRules | Downwards.
autoscaling2.HPAScalingRules v2.HPAScalingRules | How fast the number of pods may change in one direction.
  stabilizationWindowSeconds 3 int32* | How long earlier recommendations count.
  selectPolicy 1 string/v2.ScalingPolicySelect* | Max, Min or Disabled: which of the policies counts.
  policies 2 []autoscaling2.HPAScalingPolicy | Each allows a change.
  tolerance 4 Quantity* | How far a metric may be from its target.
autoscaling2.HPAScalingPolicy v2.HPAScalingPolicy | A change that is allowed.
  type 1 string/v2.HPAScalingPolicyType! required | Pods or Percent.
  value 2 int32! required | How many, or how many percent.
  periodSeconds 3 int32! required | In how many seconds.
autoscaling2.HorizontalPodAutoscalerStatus v2.HorizontalPodAutoscalerStatus | What its controller reports.
  observedGeneration 1 int64* | The generation that it has seen.
  lastScaleTime 2 Time | When it last changed the number of pods.
  currentReplicas 3 int32 | How many pods there are.
  desiredReplicas 4 int32! required | How many pods it wants.
  currentMetrics 5 []autoscaling2.MetricStatus! | The last values of the metrics.
  conditions 6 []autoscaling2.HorizontalPodAutoscalerCondition merge=type map=type | Its conditions.
autoscaling2.HorizontalPodAutoscalerCondition v2.HorizontalPodAutoscalerCondition | One condition of an autoscaler.
  type 1 string/v2.HorizontalPodAutoscalerConditionType! required | Its name.
  status 2 string/v1.ConditionStatus! required | True, False or Unknown.
  lastTransitionTime 3 Time! | When the status last changed.
  reason 4 string | Why, in one word.
  message 5 string | Why, in a sentence.
autoscaling2.MetricStatus v2.MetricStatus | The last value of a metric.
  type 1 string/v2.MetricSourceType! required | ContainerResource, External, Object, Pods or Resource.
  object 2 autoscaling2.ObjectMetricStatus | A metric of one object.
  pods 3 autoscaling2.PodsMetricStatus | A metric of each pod.
  resource 4 autoscaling2.ResourceMetricStatus | What the pods use of a resource.
  containerResource 7 autoscaling2.ContainerResourceMetricStatus | What one container of each pod uses of a resource.
  external 5 autoscaling2.ExternalMetricStatus | A metric from outside the cluster.
autoscaling2.ObjectMetricStatus v2.ObjectMetricStatus | A metric of one object.
  metric 1 autoscaling2.MetricIdentifier! required | The metric.
  current 2 autoscaling2.MetricValueStatus! required | Its value.
  describedObject 3 autoscaling2.CrossVersionObjectReference! required | The object.
autoscaling2.PodsMetricStatus v2.PodsMetricStatus | A metric of each pod.
  metric 1 autoscaling2.MetricIdentifier! required | The metric.
  current 2 autoscaling2.MetricValueStatus! required | Its value.
autoscaling2.ResourceMetricStatus v2.ResourceMetricStatus | What the pods use of a resource.
  name 1 string/v1.ResourceName! required | The resource.
  current 2 autoscaling2.MetricValueStatus! required | The usage.
autoscaling2.ContainerResourceMetricStatus v2.ContainerResourceMetricStatus | What a container uses of a resource.
  name 1 string/v1.ResourceName! required | The resource.
  current 2 autoscaling2.MetricValueStatus! required | The usage.
  container 3 string! required | Name of the container.
autoscaling2.ExternalMetricStatus v2.ExternalMetricStatus | A metric from outside the cluster.
  metric 1 autoscaling2.MetricIdentifier! required | The metric.
  current 2 autoscaling2.MetricValueStatus! required | Its value.
autoscaling2.MetricValueStatus v2.MetricValueStatus | The last value of a metric.
  value 1 Quantity* | The value.
  averageValue 2 Quantity* | The value for each pod.
  averageUtilization 3 int32* | The average in percent of the requests.
"""
