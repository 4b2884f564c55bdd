"""Shared by the tests of the kubelet configuration: read a document, list its errors."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from plimsoll.errors import InvalidConfigsError
from plimsoll.rules.config.parse import ParsedConfig, reading
from plimsoll.rules.profile import PROFILE_DOCUMENTS, profile_named

BOTH = pytest.mark.parametrize("profile", [PROFILE_DOCUMENTS, profile_named("1.36")], ids=["documents", "1.36"])


def read(text: str, profile: Any = PROFILE_DOCUMENTS, **flags: Any) -> ParsedConfig:
    return reading(yaml.safe_load(text), profile, flags)


def problems(text: str, profile: Any = PROFILE_DOCUMENTS, **flags: Any) -> dict[str, str]:
    with pytest.raises(InvalidConfigsError) as raised:
        read(text, profile, **flags)
    assert all(str(error) in str(raised.value) for error in raised.value.errors)
    return {error.path: error.reason for error in raised.value.errors}


# What kubelet.config.k8s.io/v1beta1 has at its top level in 1.37.
NAMES = """
address allowedUnsafeSysctls authentication authorization cgroupDriver cgroupRoot cgroupsPerQOS clusterDNS
clusterDomain configMapAndSecretChangeDetectionStrategy containerLogMaxFiles containerLogMaxSize containerLogMaxWorkers
containerLogMonitorInterval containerRuntimeEndpoint contentType cpuCFSQuota cpuCFSQuotaPeriod cpuManagerPolicy
cpuManagerPolicyOptions cpuManagerReconcilePeriod crashLoopBackOff defaultPodSysctls draManagerReconcilePeriod
enableContentionProfiling enableControllerAttachDetach enableDebugFlagsHandler enableDebuggingHandlers
enableProfilingHandler enableServer enableSystemLogHandler enableSystemLogQuery enforceNodeAllocatable eventBurst
eventRecordQPS evictionHard evictionMaxPodGracePeriod evictionMinimumReclaim evictionPressureTransitionPeriod
evictionSoft evictionSoftGracePeriod failCgroupV1 failSwapOn featureGates fileCheckFrequency hairpinMode
healthzBindAddress healthzPort httpCheckFrequency imageGCHighThresholdPercent imageGCLowThresholdPercent
imageMaximumGCAge imageMinimumGCAge imagePullCredentialsVerificationPolicy imageServiceEndpoint iptablesDropBit
iptablesMasqueradeBit kernelMemcgNotification kubeAPIBurst kubeAPIQPS kubeReserved kubeReservedCgroup kubeletCgroups
localStorageCapacityIsolation logging makeIPTablesUtilChains maxOpenFiles maxParallelImagePulls maxPods
memoryManagerPolicy memoryReservationPolicy memorySwap memoryThrottlingFactor mergeDefaultEvictionSettings
nodeLeaseDurationSeconds nodeStatusMaxImages nodeStatusReportFrequency nodeStatusUpdateFrequency oomScoreAdj podCIDR
podLogsDir podPidsLimit podsPerCore port preloadedImagesVerificationAllowlist protectKernelDefaults providerID
qosReserved readOnlyPort registerNode registerWithTaints registryBurst registryPullQPS reservedMemory
reservedSystemCPUs resolvConf rotateCertificates runOnce runtimeRequestTimeout seccompDefault serializeImagePulls
serverTLSBootstrap showHiddenMetricsForVersion shutdownGracePeriod shutdownGracePeriodByPodPriority
shutdownGracePeriodCriticalPods singleProcessOOMKill staticPodPath staticPodURL staticPodURLHeader
streamingConnectionIdleTimeout syncFrequency systemCgroups systemReserved systemReservedCgroup tlsCertFile
tlsCipherSuites tlsCurvePreferences tlsMinVersion tlsPrivateKeyFile topologyManagerPolicy
topologyManagerPolicyOptions topologyManagerScope tracing userNamespaces volumePluginDir volumeStatsAggPeriod
"""


API_NAMES = NAMES.split()
