// SPDX-License-Identifier: Apache-2.0

package model

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// VMRef identifies a VM. Its addresses belong to the VM, not to the pod that it runs in.
type VMRef struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid,omitempty"` // empty: any VM of that name
}

// String is "namespace/name".
func (v VMRef) String() string { return v.Namespace + "/" + v.Name }

// KeepAddress is whether a VM's addresses stay with it when its pod is replaced.
type KeepAddress string

// The values of KeepAddress.
const (
	// KeepIfSupported: if the network's IPAM supports it.
	KeepIfSupported KeepAddress = ""
	// KeepAlways: an IPAM that does not support it is an error.
	KeepAlways KeepAddress = "true"
	// KeepNever: the addresses are released with the pod.
	KeepNever KeepAddress = "false"
)

// The keys of CNI_ARGS that replace the annotations if there is no pod.
const (
	argVM       = "WEFT_VM"
	argIncoming = "WEFT_INCOMING"
	argKeep     = "WEFT_KEEP_ADDRESS"
)

// VM returns the VM of the attachment, or nil.
func (r Request) VM() *VMRef {
	if r.Origin != nil && r.Origin.VM != nil {
		return r.Origin.VM
	}
	text, _ := r.Arg(argVM)
	namespace, name, ok := strings.Cut(text, "/")
	if !ok || namespace == "" || name == "" {
		return nil
	}
	return &VMRef{Namespace: namespace, Name: name}
}

// Incoming reports whether the VM runs on another node and is to migrate into this attachment's container.
func (r Request) Incoming() bool {
	if r.Origin != nil && r.Origin.VM != nil {
		return r.Origin.Incoming
	}
	text, _ := r.Arg(argIncoming)
	return text == "1"
}

// KeepAddress returns whether the VM's addresses stay with it.
func (r Request) KeepAddress() KeepAddress {
	if r.Origin != nil && r.Origin.VM != nil {
		return r.Origin.Keep
	}
	text, _ := r.Arg(argKeep)
	return KeepAddress(text)
}

// CheckVM validates what CNI_ARGS contain about a VM.
func (r Request) CheckVM() error {
	if text, is := r.Arg(argVM); is {
		namespace, name, ok := strings.Cut(text, "/")
		if !ok {
			return Errorf(CodeInvalidEnv, "as default/db", "environment: CNI_ARGS %s %q is not NAMESPACE/NAME", argVM, text)
		}
		for _, part := range []string{namespace, name} {
			if err := CheckName("environment: CNI_ARGS "+argVM+":", part); err != nil {
				return err
			}
		}
	}
	if text, is := r.Arg(argIncoming); is && text != "1" && text != "0" {
		return Errorf(CodeInvalidEnv, "1 or 0", "environment: CNI_ARGS %s %q is neither 1 nor 0", argIncoming, text)
	}
	switch k := r.KeepAddress(); k {
	case KeepIfSupported, KeepAlways, KeepNever:
		return nil
	default:
		return Errorf(CodeInvalidEnv, "true or false", "environment: CNI_ARGS %s %q is neither true nor false",
			argKeep, string(k))
	}
}

// maxClaimVMName limits the part of a claim's name that is the VM's name.
const maxClaimVMName = 40

// ClaimName returns the name of the AddressClaim of a VM's interface on a network: a readable part, then a unique one.
func (v VMRef) ClaimName(network, ifName string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q", v.String(), network, ifName))
	name := v.Name
	if len(name) > maxClaimVMName {
		name = strings.TrimRight(name[:maxClaimVMName], "-.")
	}
	return "vm-" + name + "-" + hex.EncodeToString(sum[:5])
}

// MAC returns the MAC address of a VM's interface on a network: stable, and unique in the cluster.
func (v VMRef) MAC(network, ifName string) [6]byte {
	sum := sha256.Sum256(fmt.Appendf(nil, "mac %q %q %q", v.String(), network, ifName))
	var mac [6]byte
	copy(mac[:], sum[:])
	mac[0] = mac[0]&^3 | 2 // unicast, locally administered
	return mac
}
