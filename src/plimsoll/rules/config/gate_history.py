"""The feature gates of each release: stage, default and lock, as the release's binaries list them.

A line is a gate with its history: `NodeSwap 27a- 28b- 30b+ 34g+!` is alpha and off in 1.27, beta and off from 1.28,
beta and on from 1.30, stable, on and locked from 1.34. Stages: `a` alpha, `b` beta, `g` stable (GA), `d` deprecated.
`.` is a gate that the release no longer has.

`rules.config.gates` reads it.
"""

from __future__ import annotations

HISTORY = """\
APIListChunking 27b+ 29g+! 33.
APIPriorityAndFairness 27b+ 29g+! 31.
APIResponseCompression 27b+
APISelfSubjectReview 27b+ 28g+! 30.
APIServerIdentity 27b+
APIServerTracing 27b+ 34g+! 37.
APIServerWebhookAuthenticationToken 37a-
APIServingWithRoutine 30a-
AdmissionWebhookMatchConditions 27a- 28b+ 30g+! 33.
AdvancedAuditing 27g+! 28.
AggregatedDiscoveryEndpoint 27b+ 30g+! 33.
AggregatedDiscoveryRemoveBetaType 33d+ 35d+!
AllAlpha 27a-
AllBeta 27b-
AllowDNSOnlyNodeCSR 31d-
AllowInsecureKubeletCertificateSigningRequests 31d-
AllowOverwriteTerminationGracePeriodSeconds 32d- 35d-!
AllowParsingUserUIDFromCertAuth 33b+
AllowServiceExternalIPs 36g+
AllowServiceLBStatusOnNonLB 29d- 32d-! 35.
AllowUnsafeMalformedObjectDeletion 32a- 37b+
AnonymousAuthConfigurableEndpoints 31a- 32b+ 34g+! 37.
AnyVolumeDataSource 27b+ 33g+! 37.
AppArmor 27b+ 31g+! 33.
AppArmorFields 30b+ 31g+! 33.
AtomicFIFO 36b+
AtomicWriteVolumeUserFields 37a-
AuthorizeNodeWithSelectors 31a- 32b+ 34g+! 37.
AuthorizePodWebsocketUpgradeCreatePermission 35b+
AuthorizeWithSelectors 31a- 32b+ 34g+! 37.
BtreeWatchCache 32b+ 33g+! 37.
CBORServingAndStorage 32a-
CPUManager 27g+! 33.
CPUManagerPolicyAlphaOptions 27a-
CPUManagerPolicyBetaOptions 27b+
CPUManagerPolicyOptions 27b+ 33g+!
CRDObservedGenerationTracking 35b- 36b+
CRDValidationRatcheting 28a- 30b+ 33g+!
CRIListStreaming 36a-
CSIMigrationAzureFile 27g+! 30.
CSIMigrationGCE 27g+! 28.
CSIMigrationPortworx 27b- 31b+ 33g+! 36.
CSIMigrationRBD 27a- 28d- 31.
CSIMigrationvSphere 27g+! 29.
CSINodeExpandSecret 27b+ 29g+! 31.
CSIServiceAccountTokenSecrets 35b+ 36g+!
CSIStorageCapacity 27g+! 28.
CSIVolumeHealth 27a-
ChangeContainerStatusOnKubeletRestart 35d-
ClearingNominatedNodeNameAfterBinding 34a- 35b+
ClientsAllowCARotation 36b+
ClientsAllowCBOR 32a-
ClientsAllowTLSCacheGC 36b+
ClientsPreferCBOR 32a-
CloudControllerManagerWatchBasedRoutesReconciliation 35a-
CloudControllerManagerWebhook 27a-
CloudDualStackNodeIPs 27a- 29b+ 30g+! 32.
ClusterTrustBundle 27a- 33b- 37g+
ClusterTrustBundleProjection 29a- 33b- 37g+
ComponentFlagz 32a- 36b+
ComponentSLIs 27b+ 32g+! 33. 34g+! 35.
ComponentStatusz 32a- 36b+
CompositePodGroup 37a-
ConcurrentWatchObjectDecode 31b- 37b+
ConsistentHTTPGetHandlers 27g+ 30g+! 31.
ConsistentListFromCache 28a- 31b+ 34g+! 37.
ConsistentListFromCacheSkipTimeoutFallback 37a-
ConstrainedImpersonation 35a- 36b+
ContainerCheckpoint 27a- 30b+
ContainerRestartRules 34a- 35b+
ContainerStopSignals 33a-
ControllerManagerReleaseLeaderElectionLockOnExit 36a-
CoordinatedLeaderElection 31a- 33b-
CronJobTimeZone 27g+! 29.
CronJobsScheduledAnnotation 28b+ 32g+! 35.
CrossNamespaceVolumeDataSource 27a-
CustomCPUCFSQuotaPeriod 27a- 36g+
CustomResourceFieldSelectors 30a- 31b+ 32g+!
CustomResourceValidationExpressions 27b+ 29g+! 31.
DRAAdminAccess 32a- 34b+ 36g+!
DRAConsumableCapacity 34a- 36b+
DRAControlPlaneController 31a- 32.
DRADerivedAttributes 37a-
DRADeviceBindingConditions 34a- 36b+
DRADeviceCompatibilityGroups 37a-
DRADeviceTaintRules 35a- 36b- 37g+
DRADeviceTaints 33a- 36b+ 37g+
DRAExtendedResource 34a- 36b+ 37g+!
DRAFractionalCapacityRange 37b-
DRAListTypeAttributes 36a-
DRANodeAllocatableResources 36a-
DRAOptionalNodeOperations 37a-
DRAPartitionableDevices 33a- 36b+
DRAPartitionableDevicesType 37a-
DRAPrioritizedList 33a- 34b+ 36g+ 37g+!
DRAResourceClaimDeviceStatus 32a- 33b+ 37g+!
DRAResourceClaimGranularStatusAuthorization 36b+
DRAResourcePoolStatus 36a-
DRASchedulerFilterTimeout 34b+
DRAWorkloadResourceClaims 36a- 37b-
DeclarativeValidation 33b+ 36g+!
DeclarativeValidationBeta 36b+
DeclarativeValidationTakeover 33b- 36d- 37d-!
DefaultHostNetworkHostPortsInPodTemplates 28d- 31.
DefaultPodSysctls 37a-
DelegateFSGroupToCSIDriver 27g+! 28.
DeploymentReplicaSetTerminatingReplicas 33a- 35b+
DetectCacheInconsistency 34b+
DevicePluginCDIDevices 28a- 29b+ 31g+! 34.
DevicePlugins 27g+! 28.
DisableAcceleratorUsageMetrics 27g+! 28.
DisableAllocatorDualWrite 31a- 33b- 34g+ 35g+!
DisableCPUQuotaWithExclusiveCPUs 33b+ 36d+ 37d+!
DisableCloudProviders 27a- 29b+ 31g+! 33.
DisableKubeletCloudCredentialProviders 27a- 29b+ 31g+! 33.
DisableNodeKubeProxyVersion 29a- 31d- 33d+ 36d+!
DownwardAPIHugePages 27g+! 29.
DryRun 27g+! 28.
DynamicResourceAllocation 27a- 32b- 34g+ 35g+!
EfficientWatchResumption 27g+! 33.
ElasticIndexedJob 27b+ 31g+! 34.
EmptyDirVolumeMode 37a-
EndpointSliceTerminatingCondition 27g+! 28.
EnvFiles 34a- 35b+
EtcdRangeStream 37b+
EventedPLEG 27a-
EvictionRequestAPI 37a-
ExcludeAdmissionWebhookVirtualResources 37b+
ExecProbeTimeout 27g+ 35g+!
ExpandedDNSConfig 27b+ 28g+! 30.
ExperimentalHostUserNamespaceDefaulting 27b- 28d-! 30.
ExtendWebSocketsToKubelet 36b+
ExternalServiceAccountTokenSigner 32a- 34b+ 36g+!
GRPCContainerProbe 27g+! 29.
GRPCContainerProbeTLS 37a-
GangScheduling 35a- 37.
GenericWorkload 35a- 37b-
GitRepoVolumeDriver 33d- 36d-!
GracefulNodeShutdown 27b+
GracefulNodeShutdownBasedOnPodPriority 27b+
H2CContainerProbe 37a-
HPAConfigurableTolerance 33a- 35b+ 37g+!
HPAContainerMetrics 27b+ 30g+! 32.
HPAGeneration 37b+
HPAOptimizedSelectorStore 37b+
HPAScaleToZero 27a- 37b+
HonorPVReclaimPolicy 27a- 31b+ 33g+! 36.
HostnameOverride 34a- 35b+ 37g+!
HugepageAwareEviction 37b+
IPTablesOwnershipCleanup 27b+ 28g+! 30.
ImageMaximumGCAge 29a- 30b+ 35g+!
ImageVolume 31a- 33b- 35b+ 36g+!
ImageVolumeWithDigest 36a-
InOrderInformers 33b+ 36g+!
InOrderInformersBatchProcess 35b+
InPlacePodLevelResourcesVerticalScaling 35a- 36b+
InPlacePodVerticalScaling 27a- 33b+ 35g+!
InPlacePodVerticalScalingAllocatedStatus 32a- 33d- 36.
InPlacePodVerticalScalingExclusiveCPUs 32a-
InPlacePodVerticalScalingExclusiveMemory 34a-
InPlacePodVerticalScalingInitContainers 36b+ 37g+!
InPlacePodVerticalScalingMemoryBackedVolumes 37a-
InPlacePodVerticalScalingSchedulerPreemption 37a-
InTreePluginAWSUnregister 27a- 31.
InTreePluginAzureDiskUnregister 27a- 31.
InTreePluginAzureFileUnregister 27a- 31.
InTreePluginGCEUnregister 27a- 31.
InTreePluginOpenStackUnregister 27a- 31.
InTreePluginPortworxUnregister 27a- 36.
InTreePluginRBDUnregister 27a- 28d- 31.
InTreePluginvSphereUnregister 27a- 31.
InformerResourceVersion 30a- 35g+
InterPodAffinityHostnameFastPath 37a-
JobBackoffLimitPerIndex 28a- 29b+ 33g+! 37.
JobManagedBy 30a- 32b+ 35g+!
JobMutableNodeSchedulingDirectives 27g+! 29.
JobPodFailurePolicy 27b+ 31g+! 33.
JobPodReplacementPolicy 28a- 29b+ 34g+! 37.
JobReadyPods 27b+ 29g+! 31.
JobSuccessPolicy 30a- 31b+ 33g+! 37.
JobTrackingWithFinalizers 27g+! 29.
KMSv1 28d+ 29d-
KMSv2 27b+ 29g+! 32.
KMSv2KDF 28b- 29g+! 32.
KubeProxyDrainingTerminatingNodes 28a- 30b+ 31g+! 33.
KubeProxyIPVS 37d+
KubeProxyNFTablesLocalhostNodePorts 37a-
KubeletAllocatedPodsEndpoint 37a-
KubeletCgroupDriverFromCRI 28a- 31b+ 34g+!
KubeletCrashLoopBackOffMax 32a- 35b+
KubeletCredentialProviders 27g+! 28.
KubeletEnsureSecretPulledImages 33a- 35b+
KubeletFineGrainedAuthz 32a- 33b+ 36g+!
KubeletInUserNamespace 27a- 37b+
KubeletPSI 33a- 34b+ 36g+!
KubeletPodResources 27b+ 28g+! 30.
KubeletPodResourcesDynamicResources 27a- 34b+ 36g+!
KubeletPodResourcesGet 27a- 34b+ 36g+!
KubeletPodResourcesGetAllocatable 27b+ 28g+! 30.
KubeletPodResourcesListUseActivePods 34d+
KubeletRegistrationGetOnExistsOnly 32d-
KubeletSeparateDiskGC 29a- 31b+
KubeletServiceAccountTokenForCredentialProviders 33a- 34b+
KubeletTracing 27b+ 34g+!
LegacyServiceAccountTokenCleanUp 28a- 29b+ 30g+! 32.
LegacyServiceAccountTokenNoAutoGeneration 27g+! 29.
LegacyServiceAccountTokenTracking 27b+ 28g+! 30.
LegacySidecarContainers 33d- 34.
ListFromCacheSnapshot 33a- 34b+
LoadBalancerIPMode 29a- 30b+ 32g+! 35.
LocalStorageCapacityIsolationFSQuotaMonitoring 27a- 31b-
LogarithmicScaleDown 27b+ 31g+! 37.
ManifestBasedAdmissionControlConfig 36a- 37b+
MatchLabelKeysInPodAffinity 29a- 31b+ 33g+!
MatchLabelKeysInPodTopologySpread 27b+
MatchLabelKeysInPodTopologySpreadSelectorMerge 34b+
MaxUnavailableStatefulSet 27a- 35b- 37b+
MemoryManager 27b+ 32g+! 36.
MemoryQoS 27a- 37b+
MinDomainsInPodTopologySpread 27b+ 30g+! 32.
MinimizeIPTablesRestore 27b+ 28g+! 30.
MixedProtocolLBService 27g+! 28.
MultiCIDRRangeAllocator 27a- 29.
MultiCIDRServiceAllocator 27a- 31b- 33g+ 34g+!
MutableCSINodeAllocatableCount 33a- 34b- 35b+ 36g+!
MutablePVNodeAffinity 35a-
MutablePodResourcesForSuspendedJobs 35a- 36b+
MutableSchedulingDirectivesForSuspendedJobs 35a- 36b+
MutatingAdmissionPolicy 30a- 34b- 36g+
NFTablesNetlink 37b+
NFTablesProxyMode 29a- 31b+ 33g+!
NativeHistograms 37b+
NetworkPolicyStatus 27a- 28.
NewVolumeManagerReconstruction 27b- 28b+ 30g+! 32.
NodeControllerLeaseCircuitBreaker 37b+
NodeDeclaredFeatures 35a- 36b+ 37g+!
NodeInclusionPolicyInPodTopologySpread 27b+ 33g+!
NodeLifecycleConditions 37a-
NodeLogQuery 27a- 30b- 36g+!
NodeOutOfServiceVolumeDetach 27b+ 28g+! 32.
NodeSwap 27a- 28b- 30b+ 34g+!
NominatedNodeNameForExpectation 34a- 35b+
OpenAPIEnums 27b+
OpenAPIV3 27g+! 29.
OpportunisticBatching 35b+
OrderedNamespaceDeletion 30b- 33b+ 34g+! 37.
PDBUnhealthyPodEvictionPolicy 27b+ 31g+! 33.
PLEGOnDemandRelist 36b+ 37g+!
PersistentVolumeClaimUnusedSinceTime 36a- 37b+
PersistentVolumeLastPhaseTransitionTime 28a- 29b+ 31g+! 33.
PodAndContainerStatsFromCRI 27a- 37b-
PodCertificateRequest 34a- 35b- 37g+
PodDeletionCost 27b+
PodDisruptionConditions 27b+ 31g+! 34.
PodGroupPreemptionPolicy 37a-
PodHasNetworkCondition 27a- 28.
PodHostIPs 28a- 29b+ 30g+! 32.
PodIndexLabel 28b+ 32g+! 35.
PodLevelResourceManagers 36a- 37b-
PodLevelResources 32a- 34b+
PodLevelResourcesFixDefaulting 37b+
PodLevelResourcesFixKubeletQOSClass 37b+
PodLifecycleSleepAction 29a- 30b+ 34g+! 37.
PodLifecycleSleepActionAllowZero 32a- 33b+ 34g+! 37.
PodLogsQuerySplitStreams 32a-
PodObservedGenerationTracking 33a- 34b+ 35g+!
PodReadyToStartContainersCondition 28a- 29b+ 37g+!
PodSchedulingReadiness 27b+ 30g+!
PodSecurity 27g+! 28.
PodTopologyLabelsAdmission 33a- 35b+
PodsAPI 36a- 37b+
PortForwardWebsockets 30a- 31b+
PreferSameTrafficDistribution 33a- 34b+ 35g+!
PreventStaticPodAPIReferences 34b+ 37.
ProbeHostPodSecurityStandards 34g+! 35.
ProbeTerminationGracePeriod 27b+ 28g+! 29.
ProcMountType 27a- 31b- 33b+ 36g+!
ProxyTerminatingEndpoints 27b+ 28g+! 30.
QOSReserved 27a-
ReadWriteOncePod 27b+ 29g+! 31.
RecoverVolumeExpansionFailure 27a- 32b+ 34g+!
RecursiveReadOnlyMounts 30a- 31b+ 33g+!
ReduceDefaultCrashLoopBackOffDecay 33a-
RelaxedDNSSearchValidation 32a- 33b+ 34g+! 37.
RelaxedEnvironmentVariableValidation 30a- 32b+ 34g+!
RelaxedServiceNameValidation 34a- 36b+ 37g+!
ReloadKubeletClientCAFile 36b+
ReloadKubeletServerCertificateFile 31b+
RemainingItemCount 27b+ 29g+! 33.
RemoteRequestHeaderUID 32a- 33b+
RemoveSelfLink 27g+! 30.
ResilientWatchCacheInitialization 31b+ 34g+! 37.
ResourceHealthStatus 31a- 36b+
ResourceHealthStatusMessage 36b+
RestartAllContainersOnContainerExits 35a- 36b+
RetroactiveDefaultStorageClass 27b+ 28g+! 29.
RetryGenerateName 30a- 31b+ 32g+! 37.
RotateKubeletServerCertificate 27b+
RuntimeClassInImageCriApi 29a-
SELinuxChangePolicy 32a- 33b+ 36g+!
SELinuxMount 30a- 33b- 37g+
SELinuxMountReadWriteOncePod 27b- 28b+ 36g+!
SchedulerAsyncAPICalls 34b-
SchedulerAsyncPreemption 32a- 33b+
SchedulerPopFromBackoffQ 33b+
SchedulerPreQueueingHints 37a-
SchedulerQueueingHints 28b- 32b+ 34g+! 37.
SeccompDefault 27g+! 29.
SecurityContextDeny 27a- 30.
SeparateCacheWatchRPC 28b+ 33d- 36d-!
SeparateTaintEvictionController 29b+ 34g+!
ServerSideApply 27g+! 32.
ServerSideFieldValidation 27g+! 32.
ServiceAccountNodeAudienceRestriction 32b- 33b+
ServiceAccountTokenJTI 29a- 30b+ 32g+!
ServiceAccountTokenNodeBinding 29a- 31b+ 33g+!
ServiceAccountTokenNodeBindingValidation 29a- 30b+ 32g+!
ServiceAccountTokenPodNodeInfo 29a- 30b+ 32g+!
ServiceCIDRStatusFieldWiping 36d+
ServiceIPStaticSubrange 27g+! 28.
ServiceInternalTrafficPolicy 27g+! 28.
ServiceNodePortStaticSubrange 27a- 28b+ 29g+! 31.
ServiceTrafficDistribution 30a- 31b+ 33g+! 36.
ShardedListAndWatch 36a-
SidecarContainers 28a- 29b+ 33g+! 37.
SizeBasedListCostEstimate 34b+
SizeMemoryBackedVolumes 27b+ 32g+! 35.
SkipReadOnlyValidationGCE 28a- 29d+ 31.
StableLoadBalancerNodeSet 27b+ 30g+! 32.
StaleControllerConsistencyDaemonSet 36b+
StaleControllerConsistencyHPA 37b+
StaleControllerConsistencyJob 36b+
StaleControllerConsistencyReplicaSet 36b+
StaleControllerConsistencyStatefulSet 36b+
StatefulSetAutoDeletePVC 27b+ 32g+! 35.
StatefulSetRecreateStrategy 37a-
StatefulSetSemanticRevisionComparison 34b+
StatefulSetStartOrdinal 27b+ 31g+! 34.
StorageCapacityScoring 33a- 37b+
StorageNamespaceIndex 30b+ 33d+
StorageVersionAPI 27a-
StorageVersionHash 27b+
StorageVersionMigrator 30a- 35b- 37g+
StreamingCollectionEncodingToJSON 33b+ 34g+! 37.
StreamingCollectionEncodingToProtobuf 33b+ 34g+! 37.
StrictCostEnforcementForVAP 30b- 32g+! 35.
StrictCostEnforcementForWebhooks 30b- 32g+! 35.
StrictIPCIDRValidation 33a- 36b+
StructuredAuthenticationConfiguration 29a- 30b+ 34g+! 37.
StructuredAuthenticationConfigurationEgressSelector 34b+
StructuredAuthenticationConfigurationJWKSMetrics 35b+
StructuredAuthorizationConfiguration 29a- 30b+ 32g+! 36.
SupplementalGroupsPolicy 31a- 33b+ 35g+!
SystemdWatchdog 32b+ 35g+!
TaintTolerationComparisonOperators 35a-
TokenRequestServiceAccountUIDValidation 34b+
TopologyAwareHints 27b+ 33g+! 36.
TopologyAwareWorkloadScheduling 36a-
TopologyManager 27g+! 29.
TopologyManagerPolicyAlphaOptions 27a-
TopologyManagerPolicyBetaOptions 27b- 28b+
TopologyManagerPolicyOptions 27a- 28b+ 32g+ 36g+!
TranslateStreamCloseWebsocketRequests 29a- 30b+
UnauthenticatedHTTP2DOSMitigation 27b- 29b+
UnknownVersionInteroperabilityProxy 28a- 36b+
UnlockWhileProcessingFIFO 36b+
UserNamespacesHostNetworkSupport 35a-
UserNamespacesPodSecurityStandards 29a- 35.
UserNamespacesStatelessPodsSupport 27a- 28.
UserNamespacesSupport 28a- 30b- 33b+ 36g+!
ValidatingAdmissionPolicy 27a- 28b- 30g+! 32.
VolumeAttributesClass 29a- 31b- 34g+ 36g+!
VolumeBindMountOptions 37a-
VolumeCapacityPriority 27a- 33.
VolumeLimitScaling 35a- 37b+
WatchBookmark 27g+! 33.
WatchCacheInitializationPostStartHook 31b- 36b+ 37g+!
WatchFromStorageWithoutResourceVersion 27b- 33d-! 36.
WatchList 27a- 32b+ 33b- 34b+
WatchListClient 30b- 35b+
WatchListCompression 37b+
WebhookRoundTripLoadBalancing 37b+
WinDSR 27a- 33b+ 34g+!
WinOverlay 27b+ 34g+!
WindowsCPUAndMemoryAffinity 32a-
WindowsGracefulNodeShutdown 32a- 34b+
WindowsHostNetwork 27a+ 33d-
WindowsHostProcessContainers 27g+! 28.
WorkloadAwarePreemption 36a- 37.
WorkloadWithJob 36a-
ZeroLimitedNominalConcurrencyShares 29b- 30g+! 32.
"""
