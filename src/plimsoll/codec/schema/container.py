"""core/v1: containers."""

# ruff: noqa: E501 (one line per field)

_CONTAINER = """
  name {0}1 string! required | Name of the container, unique in the pod.
  image {0}2 string | The image to run.
  command {0}3 []string | What to run, instead of the image's entry point.
  args {0}4 []string | Its arguments, instead of the image's.
  workingDir {0}5 string | Working directory.
  ports {0}6 []core.ContainerPort merge=containerPort map=containerPort,protocol | Ports the container listens on.
  envFrom {0}19 []core.EnvFromSource | Where to take whole sets of environment variables from.
  env {0}7 []core.EnvVar merge=name map=name | Environment variables.
  resources {0}8 core.ResourceRequirements! | Requests and limits of cpu, memory and other resources.
  resizePolicy {0}23 []core.ContainerResizePolicy | What a change of a resource does to the running container.
  restartPolicy {0}24 string/v1.ContainerRestartPolicy* | Restart policy of this container alone; Always makes an init container a sidecar.
  restartPolicyRules {0}25 []core.ContainerRestartRule | Exceptions to the restart policy by exit code.
  volumeMounts {0}9 []core.VolumeMount merge=mountPath map=mountPath | Volumes and where they are mounted.
  volumeDevices {0}21 []core.VolumeDevice merge=devicePath map=devicePath | Block devices.
  livenessProbe {0}10 core.Probe | When it fails, the container is restarted.
  readinessProbe {0}11 core.Probe | While it fails, the container is not ready.
  startupProbe {0}22 core.Probe | Until it passes, the other probes wait.
  lifecycle {0}12 core.Lifecycle | What to do after the start and before the end.
  terminationMessagePath {0}13 string | File with the container's termination message. Default /dev/termination-log.
  terminationMessagePolicy {0}20 string/v1.TerminationMessagePolicy | File or FallbackToLogsOnError.
  imagePullPolicy {0}14 string/v1.PullPolicy | Always, Never or IfNotPresent.
  securityContext {0}15 core.SecurityContext | Security settings of the container.
  stdin {0}16 bool | Keep standard input open.
  stdinOnce {0}17 bool | Close it after the first client.
  tty {0}18 bool | Give the container a terminal.
"""

TABLE = (
    """
core.Container v1.Container | One container of a pod."""
    + _CONTAINER.format("")
    + """
core.EphemeralContainer v1.EphemeralContainer | A container added to a running pod for debugging."""
    + _CONTAINER.format("1.")
    + """
  targetContainerName 2 string | The container whose processes it is to see.
core.ContainerRestartRule v1.ContainerRestartRule | What to do at some exit codes.
  action 1 string/v1.ContainerRestartRuleAction! required | Restart.
  exitCodes 2 core.ContainerRestartRuleOnExitCodes | The exit codes.
core.ContainerRestartRuleOnExitCodes v1.ContainerRestartRuleOnExitCodes | Exit codes.
  operator 1 string/v1.ContainerRestartRuleOnExitCodesOperator! required | In or NotIn.
  values 2 []int32 set | The codes.
core.ContainerPort v1.ContainerPort | A port of a container.
  name 1 string | Name of the port.
  hostPort 2 int32 | The same port on the node.
  containerPort 3 int32! required | The port in the container.
  protocol 4 string/v1.Protocol default=TCP | TCP, UDP or SCTP. Default TCP.
  hostIP 5 string | Address of the node to bind to.
core.EnvFromSource v1.EnvFromSource | A set of environment variables.
  prefix 1 string | Put before each name.
  configMapRef 2 core.ConfigMapEnvSource | From a config map.
  secretRef 3 core.SecretEnvSource | From a secret.
core.ConfigMapEnvSource v1.ConfigMapEnvSource | A config map.
  name 1.1 string | Its name.
  optional 2 bool* | Whether it may be missing.
core.SecretEnvSource v1.SecretEnvSource | A secret.
  name 1.1 string | Its name.
  optional 2 bool* | Whether it may be missing.
core.EnvVar v1.EnvVar | An environment variable.
  name 1 string! required | Its name.
  value 2 string | Its value; $(NAME) refers to earlier variables.
  valueFrom 3 core.EnvVarSource | Where to take the value from.
core.EnvVarSource v1.EnvVarSource | Where a value comes from.
  fieldRef 1 core.ObjectFieldSelector | A field of the pod.
  resourceFieldRef 2 core.ResourceFieldSelector | A request or limit of a container.
  configMapKeyRef 3 core.ConfigMapKeySelector | A key of a config map.
  secretKeyRef 4 core.SecretKeySelector | A key of a secret.
  fileKeyRef 5 core.FileKeySelector | A key of a file in a volume.
core.ObjectFieldSelector v1.ObjectFieldSelector atomic | A field of the pod.
  apiVersion 1 string | Version of the field's path. Default v1.
  fieldPath 2 string! required | Path, such as metadata.name.
core.ResourceFieldSelector v1.ResourceFieldSelector atomic | A request or limit.
  containerName 1 string | The container.
  resource 2 string! required | The resource, such as limits.cpu.
  divisor 3 Quantity! | The unit to show it in.
core.ConfigMapKeySelector v1.ConfigMapKeySelector atomic | A key of a config map.
  name 1.1 string | The config map.
  key 2 string! required | The key.
  optional 3 bool* | Whether it may be missing.
core.SecretKeySelector v1.SecretKeySelector atomic | A key of a secret.
  name 1.1 string | The secret.
  key 2 string! required | The key.
  optional 3 bool* | Whether it may be missing.
core.FileKeySelector v1.FileKeySelector atomic | A key of a file.
  volumeName 1 string! required | The volume.
  path 2 string! required | The file in it.
  key 3 string! required | The key.
  optional 4 bool* | Whether it may be missing.
core.ResourceRequirements v1.ResourceRequirements | Requests and limits.
  limits 1 {Quantity}/v1.ResourceList | The most that may be used.
  requests 2 {Quantity}/v1.ResourceList | What is set aside; defaults to the limit.
  claims 3 []core.ResourceClaim map=name | Claims of the pod that the container uses.
core.ResourceClaim v1.ResourceClaim | A use of a claim.
  name 1 string! required | The entry of spec.resourceClaims.
  request 2 string | One request of the claim.
core.ContainerResizePolicy v1.ContainerResizePolicy | What a change of a resource does.
  resourceName 1 string/v1.ResourceName! required | cpu or memory.
  restartPolicy 2 string/v1.ResourceResizeRestartPolicy! required | NotRequired or RestartContainer.
core.VolumeMount v1.VolumeMount | A volume in a container.
  name 1 string! required | Name of the volume.
  readOnly 2 bool | Mount it read-only.
  recursiveReadOnly 7 string/v1.RecursiveReadOnlyMode* | Whether the mounts below it are read-only, too.
  mountPath 3 string! required | Where to mount it.
  subPath 4 string | Only this path of the volume.
  mountPropagation 5 string/v1.MountPropagationMode* | None, HostToContainer or Bidirectional.
  subPathExpr 6 string | The same with $(NAME) for environment variables.
core.VolumeDevice v1.VolumeDevice | A block device in a container.
  name 1 string! required | Name of the claim's volume.
  devicePath 2 string! required | Where the device appears.
core.Probe v1.Probe | A check that is made over and over.
  exec 1.1 core.ExecAction | Run a command.
  httpGet 1.2 core.HTTPGetAction | Ask by HTTP.
  tcpSocket 1.3 core.TCPSocketAction | Connect to a port.
  grpc 1.4 core.GRPCAction | Ask by gRPC.
  initialDelaySeconds 2 int32 | Seconds before the first check.
  timeoutSeconds 3 int32 | Seconds to wait for an answer. Default 1.
  periodSeconds 4 int32 | Seconds between checks. Default 10.
  successThreshold 5 int32 | Successes in a row that count as success. Default 1.
  failureThreshold 6 int32 | Failures in a row that count as failure. Default 3.
  terminationGracePeriodSeconds 7 int64* | Grace period after a failure.
core.ExecAction v1.ExecAction | A command.
  command 1 []string | Command and arguments; exit code 0 is success.
core.HTTPGetAction v1.HTTPGetAction | A request by HTTP.
  path 1 string | Path of the URL.
  port 2 IntOrString! required | Number or name of the port.
  host 3 string | Host; the pod's address by default.
  scheme 4 string/v1.URIScheme | HTTP or HTTPS.
  httpHeaders 5 []core.HTTPHeader | Headers to send.
core.HTTPHeader v1.HTTPHeader | A header.
  name 1 string! required | Its name.
  value 2 string! required | Its value.
core.TCPSocketAction v1.TCPSocketAction | A connection.
  port 1 IntOrString! required | Number or name of the port.
  host 2 string | Host; the pod's address by default.
core.GRPCAction v1.GRPCAction | A gRPC health check.
  port 1 int32! required | Number of the port.
  service 2 string*! | Service to ask about.
core.Lifecycle v1.Lifecycle | Hooks of a container.
  postStart 1 core.LifecycleHandler | Right after the start.
  preStop 2 core.LifecycleHandler | Before the end.
  stopSignal 3 string/v1.Signal* | The signal that asks the container to end.
core.LifecycleHandler v1.LifecycleHandler | What a hook does.
  exec 1 core.ExecAction | Run a command.
  httpGet 2 core.HTTPGetAction | Send a request by HTTP.
  tcpSocket 3 core.TCPSocketAction | No longer supported.
  sleep 4 core.SleepAction | Wait.
core.SleepAction v1.SleepAction | A pause.
  seconds 1 int64! required | How long.
core.SecurityContext v1.SecurityContext | Security settings of a container.
  capabilities 1 core.Capabilities | Linux capabilities.
  privileged 2 bool* | Run with all rights of the node.
  seLinuxOptions 3 core.SELinuxOptions | SELinux context.
  windowsOptions 10 core.WindowsSecurityContextOptions | Settings for Windows.
  runAsUser 4 int64* | User id of the process.
  runAsGroup 8 int64* | Group id of the process.
  runAsNonRoot 5 bool* | Refuse to run as user 0.
  readOnlyRootFilesystem 6 bool* | Mount the root file system read-only.
  allowPrivilegeEscalation 7 bool* | Whether a process may gain more rights than its parent.
  procMount 9 string/v1.ProcMountType* | Default or Unmasked.
  seccompProfile 11 core.SeccompProfile | Filter of system calls.
  appArmorProfile 12 core.AppArmorProfile | AppArmor profile.
core.Capabilities v1.Capabilities | Linux capabilities.
  add 1 []string/v1.Capability | To add.
  drop 2 []string/v1.Capability | To drop.
"""
)
