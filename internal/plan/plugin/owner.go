// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
	"strings"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// SharedMark is the ifalias of an interface that weft created and several attachments share.
const SharedMark = "weft:shared"

// Mark returns the owner mark of an attachment. It is the ifalias of its interfaces and, truncated, the comment of its
// nft elements.
func Mark(k model.AttachmentKey) string {
	const most = 255 // IFALIASZ, less the final zero
	return cut("weft:"+k.String(), most)
}

// isMark reports whether an ifalias is an attachment's mark.
func isMark(alias string) bool { return strings.HasPrefix(alias, "weft:") }

// elementMark returns the mark for the comment of an nft element.
func elementMark(k model.AttachmentKey) string {
	return cut(Mark(k), maxComment)
}

// Owner returns the owner of an attachment's fragment.
func Owner(k model.AttachmentKey) string { return "attachment/" + k.String() }

func cut(s string, most int) string {
	if len(s) > most {
		return s[:most]
	}
	return s
}

// HostName returns the name of the node's end of an attachment's veth pair. It has the maximum length: 44 bits of a
// hash, so that two attachments of one node never collide.
func HostName(r model.Request) string {
	sum := sha256.Sum256([]byte(seed(r) + "/host"))
	return "veth" + hex.EncodeToString(sum[:6])[:11]
}

func seed(r model.Request) string { return r.ContainerID + "/" + r.IfName }

// podMAC returns the MAC address of the container's end.
func podMAC(r model.Request) state.MAC {
	if mac := vmMAC(r); !mac.IsZero() {
		return mac
	}
	return state.SeedMAC(seed(r) + "/pod/mac")
}

// vmMAC returns the MAC address that a VM keeps in all its containers: a guest identifies its interfaces by their MAC
// addresses, and so does a DHCP server. It is zero if the attachment has no VM or the VM keeps no address.
func vmMAC(r model.Request) state.MAC {
	vm := r.VM()
	if vm == nil || r.KeepAddress() == model.KeepNever {
		return state.MAC{}
	}
	return vm.MAC(r.Network, r.IfName)
}

// portMAC derives the MAC address of the container's end on a bridge from its IP address: if the address is allocated
// to another container, the neighbors' ARP entries stay valid.
func portMAC(bridge string, addr netip.Addr) state.MAC {
	return state.SeedMAC("bridge/" + bridge + "/" + addr.String() + "/mac")
}

// hostMAC returns the MAC address of the node's end. It begins with fe, so that it is never the lowest on a bridge: a
// bridge without a configured MAC address takes the lowest one of its ports, which would change as ports come and go.
func hostMAC(r model.Request) state.MAC {
	mac := state.SeedMAC(seed(r) + "/host/mac")
	mac[0] = 0xfe
	return mac
}
