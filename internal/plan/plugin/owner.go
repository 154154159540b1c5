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

// SharedMark is the ifalias of a link that several attachments share and weft made.
const SharedMark = "weft:shared"

// Mark is the owner's mark of an attachment: in the ifalias of its links and, cut further, in the comments of its nft
// elements.
func Mark(k model.AttachmentKey) string {
	const most = 255 // IFALIASZ, less the final zero
	return cut("weft:"+k.String(), most)
}

// isMark tells whether a link's alias is an attachment's mark.
func isMark(alias string) bool { return strings.HasPrefix(alias, "weft:") }

// elementMark is the mark in the comment of an nft element.
func elementMark(k model.AttachmentKey) string {
	return cut(Mark(k), mostComment)
}

// Owner keys the fragment of an attachment.
func Owner(k model.AttachmentKey) string { return "attachment/" + k.String() }

func cut(s string, most int) string {
	if len(s) > most {
		return s[:most]
	}
	return s
}

// HostName is the name of the host's end of an attachment's veth pair. It is as long as a name can be: 44 bits of a
// hash, so that two attachments of one node never meet.
func HostName(r model.Request) string {
	sum := sha256.Sum256([]byte(seed(r) + "/host"))
	return "veth" + hex.EncodeToString(sum[:6])[:11]
}

func seed(r model.Request) string { return r.ContainerID + "/" + r.IfName }

// podMAC chooses the hardware address of the container's end.
func podMAC(r model.Request) state.MAC {
	if mac := machineMAC(r); !mac.IsZero() {
		return mac
	}
	return state.SeedMAC(seed(r) + "/pod/mac")
}

// machineMAC is that of the virtual machine whose the attachment is, in whichever container: a guest remembers its
// interfaces by theirs, and so does a DHCP server. Zero: the attachment is of none, or nothing of it is to stay.
func machineMAC(r model.Request) state.MAC {
	vm := r.VM()
	if vm == nil || r.Keeps() == model.KeepNever {
		return state.MAC{}
	}
	return vm.MAC(r.Network, r.IfName)
}

// portMAC chooses the hardware address of the container's end on a bridge from its address: when the address is given
// to another container, what the others know about it stays true, and nobody needs to be told.
func portMAC(bridge string, addr netip.Addr) state.MAC {
	return state.SeedMAC("bridge/" + bridge + "/" + addr.String() + "/mac")
}

// hostMAC chooses the hardware address of the node's end. It begins with fe, so that it is never the lowest on a
// bridge: a bridge whose address nobody set takes the lowest one of its ports, and would change it as they come and go.
func hostMAC(r model.Request) state.MAC {
	mac := state.SeedMAC(seed(r) + "/host/mac")
	mac[0] = 0xfe
	return mac
}
