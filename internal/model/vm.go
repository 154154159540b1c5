// SPDX-License-Identifier: Apache-2.0

package model

import "net/netip"

// VM is what a virtual machine's manifest says of its network, checked, in the order of the manifest.
type VM struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid,omitempty"`
	// Path is the field of the manifest below which the rest stands: "spec", or "spec.template.spec".
	Path       string        `json:"path"`
	Interfaces []VMInterface `json:"interfaces,omitempty"`
	// Queues is how many queues a virtio interface has; 0 is a device that has no more than one.
	Queues int `json:"queues,omitempty"`
	// Transitional has devices of virtio that guests of before 2016 know, too.
	Transitional bool `json:"transitional,omitempty"`
	// Owner is the user and group that the hypervisor runs as.
	Owner uint32 `json:"owner"`
	// Mesh tells that a proxy beside the machine (Istio's) has its own rules in the pod.
	Mesh bool `json:"mesh,omitempty"`
	// MigrationPorts are ports of the pod on which hypervisors speak to each other.
	MigrationPorts []uint16 `json:"migrationPorts,omitempty"`
	// Hostname and Subdomain are what the guest is told to be called.
	Hostname  string `json:"hostname,omitempty"`
	Subdomain string `json:"subdomain,omitempty"`
}

// Key names the machine in its cluster.
func (v VM) Key() string { return v.Namespace + "/" + v.Name }

// VMBinding is how an interface of a guest meets the network of its pod.
type VMBinding string

// The bindings.
const (
	VMBridge     VMBinding = "bridge"
	VMMasquerade VMBinding = "masquerade"
	VMSRIOV      VMBinding = "sriov"
	// VMMacvtap hands the pod's own link, a macvtap, to the hypervisor.
	VMMacvtap VMBinding = "macvtap"
	// VMTap hands a tap to the hypervisor that a CNI plugin left in the pod, or the pod's link where there is none.
	VMTap VMBinding = "tap"
	// VMDirect joins the guest's tap to the pod's link: the guest has the pod's place on the wire, without a bridge.
	VMDirect VMBinding = "direct"
	// VMManagedTap is VMBridge without an address on the bridge and without DHCP: a plugin's sidecar does that.
	VMManagedTap VMBinding = "managedTap"
)

// VMInterface is one interface of a guest with the network that it belongs to.
type VMInterface struct {
	// Name is the interface's and the network's.
	Name string `json:"name"`
	// Index is its place in the manifest's list.
	Index   int       `json:"index"`
	Binding VMBinding `json:"binding"`
	// Plugin is the name of the binding plugin, where one was named.
	Plugin  string    `json:"plugin,omitempty"`
	Network VMNetwork `json:"network"`
	Model   string    `json:"model"`
	// MAC is the guest's address where the manifest chooses it, in lower case with colons.
	MAC string `json:"mac,omitempty"`
	// Ports are those of the pod that lead to the guest; none is all.
	Ports      []VMPorts `json:"ports,omitempty"`
	BootOrder  uint      `json:"bootOrder,omitempty"`
	PCIAddress string    `json:"pciAddress,omitempty"`
	ACPIIndex  uint      `json:"acpiIndex,omitempty"`
	// Down has the guest see no carrier; Absent takes the interface away.
	Down   bool `json:"down,omitempty"`
	Absent bool `json:"absent,omitempty"`
	// DHCP is what the guest is told beyond its addresses.
	DHCP VMDHCP `json:"dhcp,omitzero"`
	// PodLink is the name of the pod's link where the manifest's status says it.
	PodLink string `json:"podLink,omitempty"`
}

// Virtio tells whether the guest's driver is virtio: only that one knows queues.
func (i VMInterface) Virtio() bool { return i.Model == "virtio" }

// VMNetwork is the network that an interface belongs to.
type VMNetwork struct {
	Name string `json:"name"`
	// Index is its place in the manifest's list.
	Index int `json:"index"`
	// Primary is the pod's first network, whoever makes it.
	Primary bool `json:"primary,omitempty"`
	// Pod is the cluster's own network, Definition the name of another one's NetworkAttachmentDefinition.
	Pod        bool   `json:"pod,omitempty"`
	Definition string `json:"definition,omitempty"`
	// CIDR4 and CIDR6 are the subnets between pod and guest where the pod translates addresses.
	CIDR4 netip.Prefix `json:"cidr4,omitzero"`
	CIDR6 netip.Prefix `json:"cidr6,omitzero"`
}

// VMPorts is a range of ports.
type VMPorts struct {
	Protocol string `json:"protocol"` // tcp or udp
	First    uint16 `json:"first"`
	Last     uint16 `json:"last"`
}

// VMDHCP are the options of DHCP that a manifest chooses.
type VMDHCP struct {
	BootFileName   string       `json:"bootFileName,omitempty"`
	TFTPServerName string       `json:"tftpServerName,omitempty"`
	NTPServers     []netip.Addr `json:"ntpServers,omitempty"`
	// Private are options 224 to 254 in the order of the manifest.
	Private []VMDHCPOption `json:"private,omitempty"`
}

// VMDHCPOption is an option of DHCP by its number.
type VMDHCPOption struct {
	Option uint8  `json:"option"`
	Value  string `json:"value"`
}

// IsZero tells whether nothing is chosen.
func (d VMDHCP) IsZero() bool {
	return d.BootFileName == "" && d.TFTPServerName == "" && len(d.NTPServers)+len(d.Private) == 0
}
