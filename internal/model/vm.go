// SPDX-License-Identifier: Apache-2.0

package model

import "net/netip"

// VM is the network part of a VM's manifest, validated, in the order of the manifest.
type VM struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid,omitempty"`
	// Path is the field of the manifest that contains the instance's spec: "spec", or "spec.template.spec".
	Path       string        `json:"path"`
	Interfaces []VMInterface `json:"interfaces,omitempty"`
	// Queues is the number of queues of a virtio interface; 0 is a device without multiqueue.
	Queues int `json:"queues,omitempty"`
	// Transitional: virtio devices also support the legacy interface, for guests from before 2016.
	Transitional bool `json:"transitional,omitempty"`
	// Owner is the UID and GID of the hypervisor.
	Owner uint32 `json:"owner"`
	// ServiceMesh: a sidecar proxy (Istio's) has its own rules in the pod.
	ServiceMesh bool `json:"mesh,omitempty"`
	// MigrationPorts are ports of the pod that hypervisors use for live migration.
	MigrationPorts []uint16 `json:"migrationPorts,omitempty"`
	// Hostname and Subdomain are the guest's name in DHCP.
	Hostname  string `json:"hostname,omitempty"`
	Subdomain string `json:"subdomain,omitempty"`
}

// Key returns "namespace/name".
func (v VM) Key() string { return v.Namespace + "/" + v.Name }

// VMBinding is how an interface of a guest is joined to its pod's network.
type VMBinding string

// The bindings.
const (
	VMBridge     VMBinding = "bridge"
	VMMasquerade VMBinding = "masquerade"
	VMSRIOV      VMBinding = "sriov"
	// VMMacvtap: the hypervisor opens the pod's link, which is a macvtap.
	VMMacvtap VMBinding = "macvtap"
	// VMTap: the hypervisor opens a tap that a CNI plugin created in the pod, or the pod's link if there is none.
	VMTap VMBinding = "tap"
	// VMDirect joins the guest's tap to the pod's link: the guest replaces the pod, without a bridge.
	VMDirect VMBinding = "direct"
	// VMManagedTap is VMBridge without an address on the bridge and without DHCP, which a binding plugin's sidecar
	// provides.
	VMManagedTap VMBinding = "managedTap"
)

// VMInterface is one interface of a guest with its network.
type VMInterface struct {
	// Name is the name of the interface and of the network.
	Name string `json:"name"`
	// Index is the position in the manifest's list.
	Index   int       `json:"index"`
	Binding VMBinding `json:"binding"`
	// Plugin is the name of the binding plugin, if any.
	Plugin  string    `json:"plugin,omitempty"`
	Network VMNetwork `json:"network"`
	Model   string    `json:"model"`
	// MAC is the guest's MAC address if the manifest has one, in lower case with colons.
	MAC string `json:"mac,omitempty"`
	// Ports are the pod's ports that are forwarded to the guest; none means all.
	Ports      []VMPortRange `json:"ports,omitempty"`
	BootOrder  uint          `json:"bootOrder,omitempty"`
	PCIAddress string        `json:"pciAddress,omitempty"`
	ACPIIndex  uint          `json:"acpiIndex,omitempty"`
	// Down: the guest sees no carrier. Absent: the interface is to be unplugged.
	Down   bool `json:"down,omitempty"`
	Absent bool `json:"absent,omitempty"`
	// DHCP has further DHCP options.
	DHCP VMDHCP `json:"dhcp,omitzero"`
	// PodLink is the name of the pod's link if the manifest's status has it.
	PodLink string `json:"podLink,omitempty"`
}

// Virtio reports whether the guest's driver is virtio: only virtio supports multiple queues.
func (i VMInterface) Virtio() bool { return i.Model == "virtio" }

// VMNetwork is the network of an interface.
type VMNetwork struct {
	Name string `json:"name"`
	// Index is the position in the manifest's list.
	Index int `json:"index"`
	// Primary: the network is the pod's first one.
	Primary bool `json:"primary,omitempty"`
	// Pod: the network is the cluster's. Definition is the name of another network's NetworkAttachmentDefinition.
	Pod        bool   `json:"pod,omitempty"`
	Definition string `json:"definition,omitempty"`
	// CIDR4 and CIDR6 are the subnets between pod and guest with the masquerade binding.
	CIDR4 netip.Prefix `json:"cidr4,omitzero"`
	CIDR6 netip.Prefix `json:"cidr6,omitzero"`
}

// VMPortRange is a range of ports.
type VMPortRange struct {
	Protocol string `json:"protocol"` // tcp or udp
	First    uint16 `json:"first"`
	Last     uint16 `json:"last"`
}

// VMDHCP are a manifest's DHCP options.
type VMDHCP struct {
	BootFileName   string       `json:"bootFileName,omitempty"`
	TFTPServerName string       `json:"tftpServerName,omitempty"`
	NTPServers     []netip.Addr `json:"ntpServers,omitempty"`
	// Private are options 224 to 254, in the order of the manifest.
	Private []VMDHCPOption `json:"private,omitempty"`
}

// VMDHCPOption is a DHCP option by its number.
type VMDHCPOption struct {
	Option uint8  `json:"option"`
	Value  string `json:"value"`
}

// IsZero reports whether no option is set.
func (d VMDHCP) IsZero() bool {
	return d.BootFileName == "" && d.TFTPServerName == "" && len(d.NTPServers)+len(d.Private) == 0
}
