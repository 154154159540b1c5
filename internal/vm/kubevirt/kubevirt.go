// SPDX-License-Identifier: Apache-2.0

// Package kubevirt has the part of KubeVirt's API (kubevirt.io/v1) that weft reads, under KubeVirt's names: importing
// the complete API adds 9 MB to a program, and the agent must be small. A test compares the two.
package kubevirt

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Annotations of VMs.
const (
	DeprecatedNonRootVMIAnnotation   = "kubevirt.io/nonroot"
	MigrationTransportUnixAnnotation = "kubevirt.io/migrationTransportUnix"
)

// Values of fields.
const (
	VirtIO                         = "virtio"
	InterfaceStateLinkUp           = "up"
	InterfaceStateLinkDown         = "down"
	InterfaceStateAbsent           = "absent"
	DiskBusSATA            DiskBus = "sata"
	HostDiskExistsOrCreate         = "DiskOrCreate"
	MigrationTransportUnix         = "Unix"
	defaultName                    = "default"
)

// VirtualMachineInstance is an instance of a VM.
type VirtualMachineInstance struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              VirtualMachineInstanceSpec   `json:"spec"`
	Status            VirtualMachineInstanceStatus `json:"status,omitempty"`
}

// VirtualMachine is a VM, which may be stopped.
type VirtualMachine struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              VirtualMachineSpec `json:"spec"`
}

// VirtualMachineSpec has the template of the instance.
type VirtualMachineSpec struct {
	Template *VirtualMachineInstanceTemplateSpec `json:"template"`
}

// VirtualMachineInstanceTemplateSpec is the template of an instance.
type VirtualMachineInstanceTemplateSpec struct {
	ObjectMeta metav1.ObjectMeta          `json:"metadata,omitempty"`
	Spec       VirtualMachineInstanceSpec `json:"spec,omitempty"`
}

// VirtualMachineInstanceSpec is the desired state of an instance.
type VirtualMachineInstanceSpec struct {
	Domain                        DomainSpec        `json:"domain"`
	NodeSelector                  map[string]string `json:"nodeSelector,omitempty"`
	TerminationGracePeriodSeconds *int64            `json:"terminationGracePeriodSeconds,omitempty"`
	Volumes                       []Volume          `json:"volumes,omitempty"`
	Hostname                      string            `json:"hostname,omitempty"`
	Subdomain                     string            `json:"subdomain,omitempty"`
	Networks                      []Network         `json:"networks,omitempty"`
}

// VirtualMachineInstanceStatus is the observed state of an instance.
type VirtualMachineInstanceStatus struct {
	NodeName           string                                   `json:"nodeName,omitempty"`
	Phase              string                                   `json:"phase,omitempty"`
	Interfaces         []VirtualMachineInstanceNetworkInterface `json:"interfaces,omitempty"`
	MigrationTransport string                                   `json:"migrationTransport,omitempty"`
	RuntimeUser        uint64                                   `json:"runtimeUser"`
}

// VirtualMachineInstanceNetworkInterface is the observed state of an interface.
type VirtualMachineInstanceNetworkInterface struct {
	Name             string `json:"name,omitempty"`
	PodInterfaceName string `json:"podInterfaceName,omitempty"`
}

// DomainSpec has the resources and devices of the guest.
type DomainSpec struct {
	Resources ResourceRequirements `json:"resources,omitempty"`
	CPU       *CPU                 `json:"cpu,omitempty"`
	Memory    *Memory              `json:"memory,omitempty"` // glossary: KubeVirt
	Devices   Devices              `json:"devices"`
}

// ResourceRequirements are the resources of the pod.
type ResourceRequirements struct {
	Requests map[string]resource.Quantity `json:"requests,omitempty"`
	Limits   map[string]resource.Quantity `json:"limits,omitempty"`
}

// CPU is the CPU topology of the guest.
type CPU struct {
	Cores   uint32 `json:"cores,omitempty"`
	Sockets uint32 `json:"sockets,omitempty"`
	Threads uint32 `json:"threads,omitempty"`
}

// Memory is the guest's memory.
type Memory struct { // glossary: KubeVirt
	Guest *resource.Quantity `json:"guest,omitempty"`
}

// Devices are the guest's devices.
type Devices struct {
	UseVirtioTransitional      *bool       `json:"useVirtioTransitional,omitempty"`
	Disks                      []Disk      `json:"disks,omitempty"`
	Interfaces                 []Interface `json:"interfaces,omitempty"`
	AutoattachPodInterface     *bool       `json:"autoattachPodInterface,omitempty"`
	NetworkInterfaceMultiQueue *bool       `json:"networkInterfaceMultiqueue,omitempty"`
}

// Interface is a network interface of the guest.
type Interface struct {
	Name                   string `json:"name"`
	Model                  string `json:"model,omitempty"`
	InterfaceBindingMethod `json:",inline"`
	Binding                *PluginBinding `json:"binding,omitempty"`
	Ports                  []Port         `json:"ports,omitempty"`
	PortRanges             []PortRange    `json:"portRanges,omitempty"`
	MacAddress             string         `json:"macAddress,omitempty"`
	BootOrder              *uint          `json:"bootOrder,omitempty"`
	PciAddress             string         `json:"pciAddress,omitempty"`
	DHCPOptions            *DHCPOptions   `json:"dhcpOptions,omitempty"`
	ACPIIndex              int            `json:"acpiIndex,omitempty"`
	State                  string         `json:"state,omitempty"`
}

// InterfaceBindingMethod is the binding of an interface to its network: one of these.
type InterfaceBindingMethod struct {
	Bridge            *struct{} `json:"bridge,omitempty"`
	DeprecatedSlirp   *struct{} `json:"slirp,omitempty"`
	Masquerade        *struct{} `json:"masquerade,omitempty"`
	SRIOV             *struct{} `json:"sriov,omitempty"`
	DeprecatedMacvtap *struct{} `json:"macvtap,omitempty"`
	DeprecatedPasst   *struct{} `json:"passt,omitempty"`
	PasstBinding      *struct{} `json:"passtBinding,omitempty"`
}

// PluginBinding names a binding plugin.
type PluginBinding struct {
	Name string `json:"name"`
}

// Port is a port of the pod that is mapped to the guest.
type Port struct {
	Name     string `json:"name,omitempty"`
	Protocol string `json:"protocol,omitempty"`
	Port     int32  `json:"port"`
}

// PortRange is a range of such ports.
type PortRange struct {
	Protocol string `json:"protocol"`
	Start    int32  `json:"start"`
	End      int32  `json:"end"`
}

// DHCPOptions are additional DHCP options for the guest.
type DHCPOptions struct {
	BootFileName   string               `json:"bootFileName,omitempty"`
	TFTPServerName string               `json:"tftpServerName,omitempty"`
	NTPServers     []string             `json:"ntpServers,omitempty"`
	PrivateOptions []DHCPPrivateOptions `json:"privateOptions,omitempty"`
}

// DHCPPrivateOptions is a DHCP option from the range for private use.
type DHCPPrivateOptions struct {
	Option int    `json:"option"`
	Value  string `json:"value"`
}

// Network is a network of the pod.
type Network struct {
	Name          string `json:"name"`
	NetworkSource `json:",inline"`
}

// NetworkSource is the source of a network: one of these.
type NetworkSource struct {
	Pod           *PodNetwork    `json:"pod,omitempty"`
	Multus        *MultusNetwork `json:"multus,omitempty"`
	ResourceClaim *struct{}      `json:"resourceClaim,omitempty"`
}

// PodNetwork is the pod network of the cluster.
type PodNetwork struct {
	VMNetworkCIDR     string `json:"vmNetworkCIDR,omitempty"`
	VMIPv6NetworkCIDR string `json:"vmIPv6NetworkCIDR,omitempty"`
}

// MultusNetwork is a network of a NetworkAttachmentDefinition.
type MultusNetwork struct {
	NetworkName string `json:"networkName"`
	Default     bool   `json:"default,omitempty"`
}

// Disk is a disk of the guest.
type Disk struct {
	Name       string `json:"name"`
	DiskDevice `json:",inline"`
	BootOrder  *uint  `json:"bootOrder,omitempty"`
	Serial     string `json:"serial,omitempty"`
}

// DiskBus is the bus of a disk.
type DiskBus string

// DiskDevice is the type of a disk: one of these.
type DiskDevice struct {
	Disk  *DiskTarget  `json:"disk,omitempty"`
	LUN   *LunTarget   `json:"lun,omitempty"`
	CDRom *CDRomTarget `json:"cdrom,omitempty"`
}

// DiskTarget is a disk.
type DiskTarget struct {
	Bus      DiskBus `json:"bus,omitempty"`
	ReadOnly bool    `json:"readonly,omitempty"`
}

// LunTarget is a disk with SCSI passthrough.
type LunTarget struct {
	Bus      DiskBus `json:"bus,omitempty"`
	ReadOnly bool    `json:"readonly,omitempty"`
}

// CDRomTarget is a read-only CD-ROM.
type CDRomTarget struct {
	Bus DiskBus `json:"bus,omitempty"`
}

// Volume is the content of a disk.
type Volume struct {
	Name         string `json:"name"`
	VolumeSource `json:",inline"`
}

// VolumeSource is the source of a volume: one of these, or one that weft does not know.
type VolumeSource struct {
	HostDisk              *HostDisk                   `json:"hostDisk,omitempty"`
	PersistentVolumeClaim *struct{}                   `json:"persistentVolumeClaim,omitempty"`
	CloudInitNoCloud      *CloudInitNoCloudSource     `json:"cloudInitNoCloud,omitempty"`
	CloudInitConfigDrive  *CloudInitConfigDriveSource `json:"cloudInitConfigDrive,omitempty"`
	ContainerDisk         *struct{}                   `json:"containerDisk,omitempty"`
	Ephemeral             *struct{}                   `json:"ephemeral,omitempty"`
	EmptyDisk             *EmptyDiskSource            `json:"emptyDisk,omitempty"`
	DataVolume            *struct{}                   `json:"dataVolume,omitempty"`
}

// HostDisk is a file on the node.
type HostDisk struct {
	Path     string            `json:"path"`
	Type     string            `json:"type"`
	Capacity resource.Quantity `json:"capacity,omitempty"`
}

// EmptyDiskSource is a disk that is empty at each start.
type EmptyDiskSource struct {
	Capacity resource.Quantity `json:"capacity"`
}

// CloudInitNoCloudSource is the data of cloud-init's NoCloud data source.
type CloudInitNoCloudSource struct {
	UserDataSecretRef    *LocalObjectReference `json:"secretRef,omitempty"`
	UserDataBase64       string                `json:"userDataBase64,omitempty"`
	UserData             string                `json:"userData,omitempty"`
	NetworkDataSecretRef *LocalObjectReference `json:"networkDataSecretRef,omitempty"`
	NetworkDataBase64    string                `json:"networkDataBase64,omitempty"`
	NetworkData          string                `json:"networkData,omitempty"`
}

// CloudInitConfigDriveSource is the same for the ConfigDrive data source.
type CloudInitConfigDriveSource CloudInitNoCloudSource

// LocalObjectReference names an object of the VM's namespace.
type LocalObjectReference struct {
	Name string `json:"name,omitempty"`
}

// DefaultPodNetwork is the network of a VM without networks.
func DefaultPodNetwork() *Network {
	return &Network{Name: defaultName, NetworkSource: NetworkSource{Pod: &PodNetwork{}}}
}

// DefaultBridgeNetworkInterface is its interface if the cluster's default is bridge.
func DefaultBridgeNetworkInterface() *Interface {
	return &Interface{Name: defaultName, InterfaceBindingMethod: InterfaceBindingMethod{Bridge: &struct{}{}}}
}

// DefaultMasqueradeNetworkInterface is its interface if the cluster's default is masquerade.
func DefaultMasqueradeNetworkInterface() *Interface {
	return &Interface{Name: defaultName, InterfaceBindingMethod: InterfaceBindingMethod{Masquerade: &struct{}{}}}
}
