// SPDX-License-Identifier: Apache-2.0

package model

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// VMRef names a virtual machine. Its addresses are the machine's, whichever pod it runs in.
type VMRef struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid,omitempty"` // empty: whatever machine has the name
}

// String is "namespace/name".
func (v VMRef) String() string { return v.Namespace + "/" + v.Name }

// KeepAddress says whether a machine's addresses stay with it.
type KeepAddress string

// How addresses stay.
const (
	// KeepWhere: where the network's IPAM can do that.
	KeepWhere KeepAddress = ""
	// KeepAlways: an IPAM that cannot is an error.
	KeepAlways KeepAddress = "true"
	// KeepNever: the addresses are the pod's.
	KeepNever KeepAddress = "false"
)

// The pairs of CNI_ARGS that say what annotations say where there is no pod.
const (
	argVM       = "WEFT_VM"
	argIncoming = "WEFT_INCOMING"
	argKeep     = "WEFT_KEEP_ADDRESS"
)

// VM is the virtual machine that the attachment is of; nil: of none.
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

// Incoming tells whether the machine runs elsewhere, and is to migrate into this attachment's container.
func (r Request) Incoming() bool {
	if r.Origin != nil && r.Origin.VM != nil {
		return r.Origin.Incoming
	}
	text, _ := r.Arg(argIncoming)
	return text == "1"
}

// Keeps says whether the machine's addresses stay with it.
func (r Request) Keeps() KeepAddress {
	if r.Origin != nil && r.Origin.VM != nil {
		return r.Origin.Keep
	}
	text, _ := r.Arg(argKeep)
	return KeepAddress(text)
}

// CheckVM refuses what CNI_ARGS say of a machine when it cannot be meant.
func (r Request) CheckVM() error {
	if text, is := r.Arg(argVM); is {
		namespace, name, ok := strings.Cut(text, "/")
		if !ok {
			return Faultf(CodeInvalidEnv, "as default/db", "environment: CNI_ARGS %s %q is no namespace and name", argVM, text)
		}
		for _, part := range []string{namespace, name} {
			if err := CheckName("environment: CNI_ARGS "+argVM+":", part); err != nil {
				return err
			}
		}
	}
	if text, is := r.Arg(argIncoming); is && text != "1" && text != "0" {
		return Faultf(CodeInvalidEnv, "1 or 0", "environment: CNI_ARGS %s %q is neither 1 nor 0", argIncoming, text)
	}
	switch k := r.Keeps(); k {
	case KeepWhere, KeepAlways, KeepNever:
		return nil
	default:
		return Faultf(CodeInvalidEnv, "true or false", "environment: CNI_ARGS %s %q is neither true nor false",
			argKeep, string(k))
	}
}

// promiseName bounds how much of a machine's name is in that of its promise.
const promiseName = 40

// Promise names the promise of addresses to a machine's interface on a network: for people first, then beyond doubt.
func (v VMRef) Promise(network, ifName string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q", v.String(), network, ifName))
	name := v.Name
	if len(name) > promiseName {
		name = strings.TrimRight(name[:promiseName], "-.")
	}
	return "vm-" + name + "-" + hex.EncodeToString(sum[:5])
}

// MAC is the hardware address of a machine's interface on a network: always the same, and no other machine's.
func (v VMRef) MAC(network, ifName string) [6]byte {
	sum := sha256.Sum256(fmt.Appendf(nil, "mac %q %q %q", v.String(), network, ifName))
	var mac [6]byte
	copy(mac[:], sum[:])
	mac[0] = mac[0]&^3 | 2 // of one link, given locally
	return mac
}
