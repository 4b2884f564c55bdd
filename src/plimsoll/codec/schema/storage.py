"""PersistentVolumes and their claims, StorageClasses, VolumeAttributesClasses and CSINodes."""

# ruff: noqa: E501 (one line per field)

TABLE = """
core.PersistentVolume v1.PersistentVolume | A piece of storage.
  metadata 1 meta.ObjectMeta! | Name, labels and other metadata.
  spec 2 core.PersistentVolumeSpec! | What the storage is.
  status 3 core.PersistentVolumeStatus! | Whether it is in use.
core.PersistentVolumeSpec v1.PersistentVolumeSpec | What a piece of storage is.
  capacity 1 {Quantity}/v1.ResourceList | Its size.
  hostPath 2.3 core.HostPathVolumeSource | A path of a node, on clusters of one node.
  nfs 2.5 core.NFSVolumeSource | A share of an NFS server.
  local 2.20 core.LocalVolumeSource | A directory or device of the nodes in nodeAffinity.
  csi 2.22 core.CSIPersistentVolumeSource | A volume of a storage driver.
  accessModes 3 []string/v1.PersistentVolumeAccessMode atomic | How it can be used.
  claimRef 4 core.ObjectReference | The claim that it is bound to.
  persistentVolumeReclaimPolicy 5 string/v1.PersistentVolumeReclaimPolicy | Retain, Delete or Recycle: what happens when its claim is gone.
  storageClassName 6 string | Its storage class.
  mountOptions 7 []string | Options for mounting it.
  volumeMode 8 string/v1.PersistentVolumeMode* | Filesystem or Block.
  nodeAffinity 9 core.VolumeNodeAffinity | Nodes that can use it.
  volumeAttributesClassName 10 string* | Its volume attributes class.
core.LocalVolumeSource v1.LocalVolumeSource | A directory or device of a node.
  path 1 string! required | Its path.
  fsType 2 string* | The file system of a device.
core.CSIPersistentVolumeSource v1.CSIPersistentVolumeSource | A volume of a storage driver.
  driver 1 string! required | The driver.
  volumeHandle 2 string! required | The volume.
  readOnly 3 bool | Whether it is only read.
  fsType 4 string | Its file system.
  volumeAttributes 5 {string} | What the driver knows about it.
core.VolumeNodeAffinity v1.VolumeNodeAffinity | Nodes that can use a volume.
  required 1 core.NodeSelector | Which nodes.
core.PersistentVolumeStatus v1.PersistentVolumeStatus | Whether a volume is in use.
  phase 1 string/v1.PersistentVolumePhase | Pending, Available, Bound, Released or Failed.
  message 2 string | Why, in a sentence.
  reason 3 string | Why, in one word.
  lastPhaseTransitionTime 4 Time* | When the phase last changed.
core.PersistentVolumeClaimStatus v1.PersistentVolumeClaimStatus | What a claim has.
  phase 1 string/v1.PersistentVolumeClaimPhase | Pending, Bound or Lost.
  accessModes 2 []string/v1.PersistentVolumeAccessMode atomic | How the volume can be used.
  capacity 3 {Quantity}/v1.ResourceList | How large the volume is.
  conditions 4 []core.PersistentVolumeClaimCondition merge=type map=type | The claim's conditions.
  allocatedResources 5 {Quantity}/v1.ResourceList | What a resize has reached.
  allocatedResourceStatuses 7 {string} atomic | How far a resize is.
  currentVolumeAttributesClassName 8 string* | The attributes class of the volume.
core.PersistentVolumeClaimCondition v1.PersistentVolumeClaimCondition | One aspect of a claim's state.
  type 1 string/v1.PersistentVolumeClaimConditionType! required | Name of the condition.
  status 2 string/v1.ConditionStatus! required | True, False or Unknown.
  lastProbeTime 3 Time | When it was last looked at.
  lastTransitionTime 4 Time | When the status last changed.
  reason 5 string | One word for the last change.
  message 6 string | The same in a sentence.
storage.StorageClass v1.StorageClass | A kind of storage.
  metadata 1 meta.ObjectMeta! | Name, labels and other metadata.
  provisioner 2 string! required | Who makes volumes of it.
  parameters 3 {string} | Parameters for the provisioner.
  reclaimPolicy 4 string/v1.PersistentVolumeReclaimPolicy* | Delete or Retain.
  mountOptions 5 []string | Options for mounting its volumes.
  allowVolumeExpansion 6 bool* | Whether claims can grow.
  volumeBindingMode 7 string/v1.VolumeBindingMode* | Immediate or WaitForFirstConsumer.
  allowedTopologies 8 []core.TopologySelectorTerm atomic | Where volumes can be.
core.TopologySelectorTerm v1.TopologySelectorTerm | A place of nodes.
  matchLabelExpressions 1 []core.TopologySelectorLabelRequirement atomic | Labels that the nodes have.
core.TopologySelectorLabelRequirement v1.TopologySelectorLabelRequirement | A label that nodes have.
  key 1 string! required | Its key.
  values 2 []string! required atomic | One of these values.
storage.VolumeAttributesClass v1.VolumeAttributesClass | Attributes of volumes that can be changed.
  metadata 1 meta.ObjectMeta! | Name, labels and other metadata.
  driverName 2 string! required | The storage driver.
  parameters 3 {string} | The attributes.
storage.CSINode v1.CSINode | The storage drivers on a node.
  metadata 1 meta.ObjectMeta! | Name of the node, labels and other metadata.
  spec 2 storage.CSINodeSpec! required | The drivers.
storage.CSINodeSpec v1.CSINodeSpec | The storage drivers on a node.
  drivers 1 []storage.CSINodeDriver! required merge=name map=name | The drivers.
storage.CSINodeDriver v1.CSINodeDriver | A storage driver on a node.
  name 1 string! required | Name of the driver.
  nodeID 2 string! required | What the driver calls the node.
  topologyKeys 3 []string! atomic | Labels of nodes that say where volumes can be.
  allocatable 4 storage.VolumeNodeResources | How many volumes it can have.
storage.VolumeNodeResources v1.VolumeNodeResources | How many volumes a node can have.
  count 1 int32* | The number.
"""
