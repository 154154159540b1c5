// SPDX-License-Identifier: Apache-2.0

package flannel

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/weft-net/weft/internal/model"
)

// Backend is the object Backend of a net-conf.json: its type, and of all options those of that type.
type Backend struct {
	Type string
	// vxlan
	VNI, Port, MTU               int
	GBP, Learning, DirectRouting bool
	MacPrefix                    string // Windows
	// wireguard
	ListenPort, ListenPortV6    int
	PSK                         string
	PersistentKeepaliveInterval int // seconds
	Mode                        string
	// extension
	PreStartupCommand, PostStartupCommand string
	SubnetAddCommand, SubnetRemoveCommand string
}

// The modes of wireguard.
const (
	ModeSeparate = "separate"
	ModeAuto     = "auto"
	ModeIPv4     = "ipv4"
	ModeIPv6     = "ipv6"
)

// Backends returns the types that weft supports.
func Backends() []string {
	return []string{"vxlan", "host-gw", "udp", "wireguard", "ipip", "alloc", "extension"}
}

// unsupported returns types that flannel has or had and weft does not support.
func unsupported() []string {
	return []string{"ipsec", "tencent-vpc", "aws-vpc", "gce", "ali-vpc"}
}

const maxPort = 1<<16 - 1

// defaultBackend returns a backend of a type without options.
func defaultBackend(kind string) Backend {
	b := Backend{Type: kind}
	switch kind {
	case "vxlan":
		b.VNI = 1
	case "udp":
		b.Port = 8285
	case "wireguard":
		b.ListenPort, b.ListenPortV6, b.Mode = 51820, 51821, ModeSeparate
	}
	return b
}

// options returns the keys of a type, and their fields.
func (b *Backend) options() []field {
	mtu := field{"MTU", number{&b.MTU, 0, 1<<16 - 1}}
	switch b.Type {
	case "vxlan":
		return []field{
			{"VNI", number{&b.VNI, 0, 1<<24 - 1}},
			{"Port", number{&b.Port, 0, maxPort}},
			mtu,
			{"GBP", &b.GBP},
			{"Learning", &b.Learning},
			{"DirectRouting", &b.DirectRouting},
			{"MacPrefix", &b.MacPrefix},
		}
	case "udp":
		return []field{{"Port", number{&b.Port, 1, maxPort}}}
	case "wireguard":
		return []field{
			{"ListenPort", number{&b.ListenPort, 1, maxPort}},
			{"ListenPortV6", number{&b.ListenPortV6, 1, maxPort}},
			mtu,
			{"PSK", &b.PSK},
			{"PersistentKeepaliveInterval", number{&b.PersistentKeepaliveInterval, 0, maxPort}},
			{"Mode", &b.Mode},
		}
	case "ipip":
		return []field{{"DirectRouting", &b.DirectRouting}}
	case "extension":
		return []field{
			{"PreStartupCommand", &b.PreStartupCommand},
			{"PostStartupCommand", &b.PostStartupCommand},
			{"SubnetAddCommand", &b.SubnetAddCommand},
			{"SubnetRemoveCommand", &b.SubnetRemoveCommand},
		}
	}
	return nil
}

// parseBackend reads the object Backend.
func parseBackend(raw json.RawMessage) (Backend, []model.Warning, error) {
	var kind string
	head := []field{{"Type", &kind}}
	if _, err := decode("Backend.", raw, head); err != nil {
		return Backend{}, nil, err
	}
	if err := checkType(kind); err != nil {
		return Backend{}, nil, err
	}
	b := defaultBackend(kind)
	warnings, err := decode("Backend.", raw, append(b.options(), head...))
	if err != nil {
		return b, warnings, err
	}
	for i := range warnings {
		if owner := optionOf(strings.TrimPrefix(warnings[i].Field, "Backend.")); owner != "" {
			warnings[i].Msg = fmt.Sprintf("%s is an option of %s, and Backend.Type is %s: it is ignored",
				warnings[i].Field, owner, kind)
		}
	}
	return b, warnings, b.check()
}

// optionOf returns the type that has an option of that name.
func optionOf(key string) string {
	for _, kind := range Backends() {
		b := Backend{Type: kind}
		if _, ok := find(b.options(), key); ok {
			return kind
		}
	}
	return ""
}

func checkType(kind string) error {
	for _, known := range Backends() {
		if kind == known {
			return nil
		}
	}
	hint := "known: " + strings.Join(Backends(), ", ")
	switch {
	case kind == "":
		return model.Errorf(model.CodeInvalidConf, hint, "Backend.Type is missing")
	case contains(unsupported(), kind):
		return model.Errorf(model.CodeUnsupportedField, "use wireguard where packets must be encrypted, vxlan otherwise",
			"Backend.Type %q is not supported", kind)
	}
	for _, known := range Backends() {
		if distance(strings.ToLower(kind), known) < 3 {
			hint = "the nearest known is " + known
		}
	}
	return model.Errorf(model.CodeInvalidConf, hint, "Backend.Type %q is not known", kind)
}

func contains(list []string, s string) bool {
	for _, v := range list {
		if v == s {
			return true
		}
	}
	return false
}

// check validates combinations of options.
func (b Backend) check() error {
	switch b.Type {
	case "vxlan":
		if b.MTU != 0 && b.MTU < 1280 {
			return model.Errorf(model.CodeInvalidConf, "give the MTU of the nodes' network, at least 1280, or leave it out",
				"Backend.MTU %d leaves pods too little", b.MTU)
		}
	case "wireguard":
		if !contains([]string{ModeSeparate, ModeAuto, ModeIPv4, ModeIPv6}, b.Mode) {
			return model.Errorf(model.CodeInvalidConf, "known: separate, auto, ipv4, ipv6",
				"Backend.Mode %q is not known", b.Mode)
		}
		if b.Mode == ModeSeparate && b.ListenPort == b.ListenPortV6 {
			return model.Errorf(model.CodeInvalidConf, "choose another ListenPortV6, or Mode auto",
				"Backend.ListenPort and Backend.ListenPortV6 are both %d", b.ListenPort)
		}
	}
	return nil
}
