"""core/v1: volumes."""

TABLE = """
core.Volume v1.Volume | A volume of a pod; exactly one source.
  name 1 string! required | Name of the volume.
  hostPath 2.1 core.HostPathVolumeSource | A file or directory of the node.
  emptyDir 2.2 core.EmptyDirVolumeSource | A directory that lives as long as the pod.
  gcePersistentDisk 2.3 core.GCEPersistentDiskVolumeSource | A Google disk. No longer supported.
  awsElasticBlockStore 2.4 core.AWSElasticBlockStoreVolumeSource | An Amazon disk. No longer supported.
  gitRepo 2.5 core.GitRepoVolumeSource | A git repository. No longer supported.
  secret 2.6 core.SecretVolumeSource | Files from a secret.
  nfs 2.7 core.NFSVolumeSource | An NFS export.
  iscsi 2.8 core.ISCSIVolumeSource | An iSCSI disk.
  glusterfs 2.9 core.GlusterfsVolumeSource | A GlusterFS volume. No longer supported.
  persistentVolumeClaim 2.10 core.PersistentVolumeClaimVolumeSource | The volume bound to a claim.
  rbd 2.11 core.RBDVolumeSource | A Ceph block device. No longer supported.
  flexVolume 2.12 core.FlexVolumeSource | A volume of a driver on the node. Use csi.
  cinder 2.13 core.CinderVolumeSource | An OpenStack volume. No longer supported.
  cephfs 2.14 core.CephFSVolumeSource | A Ceph file system. No longer supported.
  flocker 2.15 core.FlockerVolumeSource | A Flocker volume. No longer supported.
  downwardAPI 2.16 core.DownwardAPIVolumeSource | Fields of the pod as files.
  fc 2.17 core.FCVolumeSource | A Fibre Channel disk.
  azureFile 2.18 core.AzureFileVolumeSource | An Azure file share. No longer supported.
  configMap 2.19 core.ConfigMapVolumeSource | Files from a config map.
  vsphereVolume 2.20 core.VsphereVirtualDiskVolumeSource | A vSphere disk. No longer supported.
  quobyte 2.21 core.QuobyteVolumeSource | A Quobyte volume. No longer supported.
  azureDisk 2.22 core.AzureDiskVolumeSource | An Azure disk. No longer supported.
  photonPersistentDisk 2.23 core.PhotonPersistentDiskVolumeSource | A Photon disk. No longer supported.
  projected 2.26 core.ProjectedVolumeSource | Several sources in one directory.
  portworxVolume 2.24 core.PortworxVolumeSource | A Portworx volume.
  scaleIO 2.25 core.ScaleIOVolumeSource | A ScaleIO volume. No longer supported.
  storageos 2.27 core.StorageOSVolumeSource | A StorageOS volume. No longer supported.
  csi 2.28 core.CSIVolumeSource | A volume of a CSI driver.
  ephemeral 2.29 core.EphemeralVolumeSource | A claim made for this pod alone.
  image 2.30 core.ImageVolumeSource | The files of an image, read-only.
core.HostPathVolumeSource v1.HostPathVolumeSource | A file or directory of the node.
  path 1 string! required | Its path.
  type 2 string/v1.HostPathType* | What must be there, such as Directory; empty checks nothing.
core.EmptyDirVolumeSource v1.EmptyDirVolumeSource | A directory that lives as long as the pod.
  medium 1 string/v1.StorageMedium | Empty for the node's disk, Memory for a tmpfs.
  sizeLimit 2 Quantity* | How much it may hold; a pod that exceeds it is evicted.
core.GCEPersistentDiskVolumeSource v1.GCEPersistentDiskVolumeSource | A Google disk.
  pdName 1 string! required | Name of the disk.
  fsType 2 string | File system.
  partition 3 int32 | Partition.
  readOnly 4 bool | Read-only.
core.AWSElasticBlockStoreVolumeSource v1.AWSElasticBlockStoreVolumeSource | An Amazon disk.
  volumeID 1 string! required | Identity of the disk.
  fsType 2 string | File system.
  partition 3 int32 | Partition.
  readOnly 4 bool | Read-only.
core.GitRepoVolumeSource v1.GitRepoVolumeSource | A git repository.
  repository 1 string! required | Its URL.
  revision 2 string | Commit.
  directory 3 string | Where to put it.
core.SecretVolumeSource v1.SecretVolumeSource | Files from a secret.
  secretName 1 string | Name of the secret.
  items 2 []core.KeyToPath | Keys to show; none means all.
  defaultMode 3 int32* | Mode of the files. Default 0644.
  optional 4 bool* | Whether it may be missing.
core.KeyToPath v1.KeyToPath | A key and its file.
  key 1 string! required | The key.
  path 2 string! required | The file.
  mode 3 int32* | Mode of the file.
core.NFSVolumeSource v1.NFSVolumeSource | An NFS export.
  server 1 string! required | Name of the server.
  path 2 string! required | The exported path.
  readOnly 3 bool | Read-only.
core.ISCSIVolumeSource v1.ISCSIVolumeSource | An iSCSI disk.
  targetPortal 1 string! required | Address of the target.
  iqn 2 string! required | Qualified name of the target.
  lun 3 int32! required | Number of the unit.
  iscsiInterface 4 string | Interface. Default `default`.
  fsType 5 string | File system.
  readOnly 6 bool | Read-only.
  portals 7 []string | Further addresses.
  chapAuthDiscovery 8 bool | CHAP for discovery.
  chapAuthSession 11 bool | CHAP for the session.
  secretRef 10 core.LocalObjectReference | Secret for CHAP.
  initiatorName 12 string* | Name of the initiator.
core.GlusterfsVolumeSource v1.GlusterfsVolumeSource | A GlusterFS volume.
  endpoints 1 string! required | Name of the endpoints.
  path 2 string! required | The volume.
  readOnly 3 bool | Read-only.
core.PersistentVolumeClaimVolumeSource v1.PersistentVolumeClaimVolumeSource | The volume bound to a claim.
  claimName 1 string! required | Name of the claim.
  readOnly 2 bool | Read-only.
core.RBDVolumeSource v1.RBDVolumeSource | A Ceph block device.
  monitors 1 []string! required | The monitors.
  image 2 string! required | The image.
  fsType 3 string | File system.
  pool 4 string | The pool.
  user 5 string | The user.
  keyring 6 string | File with the key.
  secretRef 7 core.LocalObjectReference | Secret with the key.
  readOnly 8 bool | Read-only.
core.FlexVolumeSource v1.FlexVolumeSource | A volume of a driver on the node.
  driver 1 string! required | Name of the driver.
  fsType 2 string | File system.
  secretRef 3 core.LocalObjectReference | Secret for the driver.
  readOnly 4 bool | Read-only.
  options 5 {string} | Options for the driver.
core.CinderVolumeSource v1.CinderVolumeSource | An OpenStack volume.
  volumeID 1 string! required | Identity of the volume.
  fsType 2 string | File system.
  readOnly 3 bool | Read-only.
  secretRef 4 core.LocalObjectReference | Secret to connect with.
core.CephFSVolumeSource v1.CephFSVolumeSource | A Ceph file system.
  monitors 1 []string! required | The monitors.
  path 2 string | The path.
  user 3 string | The user.
  secretFile 4 string | File with the key.
  secretRef 5 core.LocalObjectReference | Secret with the key.
  readOnly 6 bool | Read-only.
core.FlockerVolumeSource v1.FlockerVolumeSource | A Flocker volume.
  datasetName 1 string | Name of the data set.
  datasetUUID 2 string | Identity of the data set.
core.DownwardAPIVolumeSource v1.DownwardAPIVolumeSource | Fields of the pod as files.
  items 1 []core.DownwardAPIVolumeFile | The files.
  defaultMode 2 int32* | Mode of the files. Default 0644.
core.DownwardAPIVolumeFile v1.DownwardAPIVolumeFile | A file with a field of the pod.
  path 1 string! required | The file.
  fieldRef 2 core.ObjectFieldSelector | The field.
  resourceFieldRef 3 core.ResourceFieldSelector | Or a request or limit.
  mode 4 int32* | Mode of the file.
core.FCVolumeSource v1.FCVolumeSource | A Fibre Channel disk.
  targetWWNs 1 []string | Names of the targets.
  lun 2 int32* | Number of the unit.
  fsType 3 string | File system.
  readOnly 4 bool | Read-only.
  wwids 5 []string | Identities of the volume.
core.AzureFileVolumeSource v1.AzureFileVolumeSource | An Azure file share.
  secretName 1 string! required | Secret with the account.
  shareName 2 string! required | Name of the share.
  readOnly 3 bool | Read-only.
core.ConfigMapVolumeSource v1.ConfigMapVolumeSource | Files from a config map.
  name 1.1 string | Name of the config map.
  items 2 []core.KeyToPath | Keys to show; none means all.
  defaultMode 3 int32* | Mode of the files. Default 0644.
  optional 4 bool* | Whether it may be missing.
core.VsphereVirtualDiskVolumeSource v1.VsphereVirtualDiskVolumeSource | A vSphere disk.
  volumePath 1 string! required | Path of the disk.
  fsType 2 string | File system.
  storagePolicyName 3 string | Name of the storage policy.
  storagePolicyID 4 string | Identity of the storage policy.
core.QuobyteVolumeSource v1.QuobyteVolumeSource | A Quobyte volume.
  registry 1 string! required | The registries.
  volume 2 string! required | The volume.
  readOnly 3 bool | Read-only.
  user 4 string | User to mount as.
  group 5 string | Group to mount as.
  tenant 6 string | The tenant.
core.AzureDiskVolumeSource v1.AzureDiskVolumeSource | An Azure disk.
  diskName 1 string! required | Name of the disk.
  diskURI 2 string! required | URI of the disk.
  cachingMode 3 string/v1.AzureDataDiskCachingMode* | None, ReadOnly or ReadWrite.
  fsType 4 string* | File system.
  readOnly 5 bool* | Read-only.
  kind 6 string/v1.AzureDataDiskKind* | Shared, Dedicated or Managed.
core.PhotonPersistentDiskVolumeSource v1.PhotonPersistentDiskVolumeSource | A Photon disk.
  pdID 1 string! required | Identity of the disk.
  fsType 2 string | File system.
core.ProjectedVolumeSource v1.ProjectedVolumeSource | Several sources in one directory.
  sources 1 []core.VolumeProjection! | The sources.
  defaultMode 2 int32* | Mode of the files. Default 0644.
core.VolumeProjection v1.VolumeProjection | One source of a projected volume.
  secret 1 core.SecretProjection | A secret.
  downwardAPI 2 core.DownwardAPIProjection | Fields of the pod.
  configMap 3 core.ConfigMapProjection | A config map.
  serviceAccountToken 4 core.ServiceAccountTokenProjection | A token of the service account.
  clusterTrustBundle 5 core.ClusterTrustBundleProjection | Certificates of the cluster.
  podCertificate 6 core.PodCertificateProjection | A certificate for the pod.
core.SecretProjection v1.SecretProjection | A secret.
  name 1.1 string | Its name.
  items 2 []core.KeyToPath | Keys to show; none means all.
  optional 4 bool* | Whether it may be missing.
core.DownwardAPIProjection v1.DownwardAPIProjection | Fields of the pod.
  items 1 []core.DownwardAPIVolumeFile | The files.
core.ConfigMapProjection v1.ConfigMapProjection | A config map.
  name 1.1 string | Its name.
  items 2 []core.KeyToPath | Keys to show; none means all.
  optional 4 bool* | Whether it may be missing.
core.ServiceAccountTokenProjection v1.ServiceAccountTokenProjection | A token of the service account.
  audience 1 string | Whom the token is for.
  expirationSeconds 2 int64* | How long it is valid. Default 3600.
  path 3 string! required | The file.
core.ClusterTrustBundleProjection v1.ClusterTrustBundleProjection | Certificates of the cluster.
  name 1 string* | One bundle by name.
  signerName 2 string* | Or all of a signer.
  labelSelector 3 meta.LabelSelector | With these labels.
  optional 5 bool* | Whether they may be missing.
  path 4 string! required | The file.
core.PodCertificateProjection v1.PodCertificateProjection | A certificate for the pod.
  signerName 1 string | Who signs it.
  keyType 2 string | Kind of key.
  maxExpirationSeconds 3 int32* | How long it may be valid.
  credentialBundlePath 4 string | File with key and certificates.
  keyPath 5 string | File with the key.
  certificateChainPath 6 string | File with the certificates.
  userAnnotations 7 {string} | Further requests to the signer.
core.PortworxVolumeSource v1.PortworxVolumeSource | A Portworx volume.
  volumeID 1 string! required | Identity of the volume.
  fsType 2 string | File system.
  readOnly 3 bool | Read-only.
core.ScaleIOVolumeSource v1.ScaleIOVolumeSource | A ScaleIO volume.
  gateway 1 string! required | Address of the gateway.
  system 2 string! required | Name of the storage system.
  secretRef 3 core.LocalObjectReference*! required | Secret to log in with.
  sslEnabled 4 bool | Talk by TLS.
  protectionDomain 5 string | The protection domain.
  storagePool 6 string | The storage pool.
  storageMode 7 string | ThickProvisioned or ThinProvisioned.
  volumeName 8 string | Name of the volume.
  fsType 9 string | File system.
  readOnly 10 bool | Read-only.
core.StorageOSVolumeSource v1.StorageOSVolumeSource | A StorageOS volume.
  volumeName 1 string | Name of the volume.
  volumeNamespace 2 string | Its namespace.
  fsType 3 string | File system.
  readOnly 4 bool | Read-only.
  secretRef 5 core.LocalObjectReference | Secret to log in with.
core.CSIVolumeSource v1.CSIVolumeSource | A volume of a CSI driver.
  driver 1 string! required | Name of the driver.
  readOnly 2 bool* | Read-only.
  fsType 3 string* | File system.
  volumeAttributes 4 {string} | Attributes for the driver.
  nodePublishSecretRef 5 core.LocalObjectReference | Secret for the driver.
core.EphemeralVolumeSource v1.EphemeralVolumeSource | A claim made for one pod.
  volumeClaimTemplate 1 core.PersistentVolumeClaimTemplate | The claim to make.
core.PersistentVolumeClaimTemplate v1.PersistentVolumeClaimTemplate | A claim to be made.
  metadata 1 meta.ObjectMeta! | Its labels and annotations.
  spec 2 core.PersistentVolumeClaimSpec! required | Its spec.
core.PersistentVolumeClaimSpec v1.PersistentVolumeClaimSpec | What storage is claimed.
  accessModes 1 []string/v1.PersistentVolumeAccessMode | How it is to be used, such as ReadWriteOnce.
  selector 4 meta.LabelSelector | Volumes to choose from.
  resources 2 core.VolumeResourceRequirements! | How much.
  volumeName 3 string | The volume that is bound.
  storageClassName 5 string* | The storage class.
  volumeMode 6 string/v1.PersistentVolumeMode* | Filesystem or Block.
  dataSource 7 core.TypedLocalObjectReference | What to fill it from.
  dataSourceRef 8 core.TypedObjectReference | The same, also from other namespaces.
  volumeAttributesClassName 9 string* | The volume attributes class.
core.VolumeResourceRequirements v1.VolumeResourceRequirements | How much storage.
  limits 1 {Quantity}/v1.ResourceList | At most.
  requests 2 {Quantity}/v1.ResourceList | At least.
core.TypedLocalObjectReference v1.TypedLocalObjectReference atomic | An object of some kind in the same namespace.
  apiGroup 1 string*! | Its group.
  kind 2 string! required | Its kind.
  name 3 string! required | Its name.
core.TypedObjectReference v1.TypedObjectReference | An object of some kind.
  apiGroup 1 string*! | Its group.
  kind 2 string! required | Its kind.
  name 3 string! required | Its name.
  namespace 4 string* | Its namespace.
core.ImageVolumeSource v1.ImageVolumeSource | The files of an image.
  reference 1 string | The image.
  pullPolicy 2 string/v1.PullPolicy | Always, Never or IfNotPresent.
"""
