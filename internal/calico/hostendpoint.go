// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

// HostEndpoints are interfaces of nodes.
func HostEndpoints() []store.Kind { return kinds("HostEndpoint", "hostendpoints", false) }

// FelixConfigurations are settings of Calico's nodes, of which some change verdicts.
func FelixConfigurations() []store.Kind {
	return kinds("FelixConfiguration", "felixconfigurations", false)
}

// ControllersConfigurations are settings of Calico's controllers, which may create host endpoints.
func ControllersConfigurations() []store.Kind {
	return kinds("KubeControllersConfiguration", "kubecontrollersconfigurations", false)
}

// defaultControllers is the name of the only one that Calico's controllers read.
const defaultControllers = "default"

// HostKinds returns the kinds of each API group that policies at host endpoints need.
func HostKinds() [][]store.Kind {
	var out [][]store.Kind
	for i := range HostEndpoints() {
		out = append(out, []store.Kind{HostEndpoints()[i], FelixConfigurations()[i], ControllersConfigurations()[i]})
	}
	return out
}

// IsHostEndpoint, IsFelixConfiguration and IsControllersConfiguration report whether the key is of that kind.
func IsHostEndpoint(k store.Key) bool { return of(k, HostEndpoints()) }

// IsFelixConfiguration reports whether the key is one of Calico's settings of nodes.
func IsFelixConfiguration(k store.Key) bool { return of(k, FelixConfigurations()) }

// IsControllersConfiguration reports whether the key is one of its settings of controllers.
func IsControllersConfiguration(k store.Key) bool { return of(k, ControllersConfigurations()) }

// allowProfile is the profile that allows everything. Those of namespaces do, too; no others have rules in a Kubernetes
// datastore.
const allowProfile, namespaceProfile = "projectcalico-default-allow", "kns."

// HostEndpoint returns the object as a host endpoint. One with an invalid field is returned without it, and the error, so
// that its policies stay in force at what is valid; nil if its interface is not known.
func HostEndpoint(o store.Object) (*model.HostEndpoint, error) {
	var in struct {
		Spec struct {
			Node        string   `json:"node"`
			Interface   string   `json:"interfaceName"`
			ExpectedIPs []string `json:"expectedIPs"`
			Profiles    []string `json:"profiles"`
			Ports       []struct {
				Name     string         `json:"name"`
				Protocol numberOrString `json:"protocol"`
				Port     uint16         `json:"port"`
			} `json:"ports"`
		} `json:"spec"`
	}
	labels, err := labelsOf(o)
	if err != nil {
		return nil, err
	}
	if err := decode(o, &in); err != nil {
		return nil, err
	}
	out := &model.HostEndpoint{
		Name: o.Key.Name, Node: in.Spec.Node, Interface: in.Spec.Interface, Labels: labels,
		Automatic: labels[model.HostEndpointCreatorLabel] == model.HostEndpointCreator,
		Allows: slices.ContainsFunc(in.Spec.Profiles, func(p string) bool {
			return p == allowProfile || strings.HasPrefix(p, namespaceProfile)
		}),
	}
	switch {
	case out.Node == "":
		return nil, invalid(o, "write the name of a node", "spec.node is missing")
	case out.Interface == "" && len(in.Spec.ExpectedIPs) == 0:
		return nil, invalid(o, `write an interface, "*", or addresses`, "spec.interfaceName and spec.expectedIPs are both missing")
	case out.Interface != model.AllInterfaces && strings.ContainsAny(out.Interface, "\"/ \t\n*") || len(out.Interface) > 15:
		return nil, invalid(o, `write for example "eth0"`, "spec.interfaceName %q is no name of an interface", out.Interface)
	}
	var failed error
	for i, text := range in.Spec.ExpectedIPs {
		a, err := netip.ParseAddr(text)
		if err != nil || a.Zone() != "" {
			failed = errors.Join(failed, invalid(o, "write an address", "spec.expectedIPs[%d] %q is no address", i, text))
			out.Incomplete = true
			continue
		}
		out.Addrs = append(out.Addrs, a.Unmap())
	}
	for i, p := range in.Spec.Ports {
		transport, is := transports()[protocols()[strings.ToLower(string(p.Protocol))]]
		if !is || p.Port == 0 || p.Name == "" {
			failed = errors.Join(failed, invalid(o, "write a name, TCP, UDP or SCTP, and a number from 1 to 65535",
				"spec.ports[%d] {%s %s %d} is no named port", i, p.Name, p.Protocol, p.Port))
			continue
		}
		out.Ports = append(out.Ports, model.PodPort{Name: p.Name, Protocol: transport, Number: p.Port})
	}
	return out, failed
}

// numberOrString is a value that Calico writes as a number or a string.
type numberOrString string

func (n *numberOrString) UnmarshalJSON(raw []byte) error {
	*n = numberOrString(strings.Trim(string(raw), `"`))
	return nil
}

// FelixConfiguration returns the object as the settings that change verdicts; nil if it cannot be read. An invalid one is not
// set, so that its default is used, and the error says which.
func FelixConfiguration(o store.Object) (*model.FelixConfiguration, error) {
	var in struct {
		Metadata struct {
			Created time.Time `json:"creationTimestamp"`
		} `json:"metadata"`
		Spec struct {
			NodeSelector   string          `json:"nodeSelector"`
			Inbound        *[]failsafePort `json:"failsafeInboundHostPorts"`
			Outbound       *[]failsafePort `json:"failsafeOutboundHostPorts"`
			EndpointToHost string          `json:"defaultEndpointToHostAction"`
		} `json:"spec"`
	}
	out := &model.FelixConfiguration{Name: o.Key.Name}
	if err := decode(o, &in); err != nil {
		return nil, err
	}
	if t := in.Metadata.Created; !t.IsZero() {
		out.Created = t.Unix()
	}
	var failed, err error
	if text := in.Spec.NodeSelector; text != "" {
		if out.Nodes, err = expression("spec.nodeSelector", text); err != nil {
			return nil, invalid(o, "compare with Calico's reference of selectors", "%w", err)
		}
	}
	for _, one := range []struct {
		field string
		in    *[]failsafePort
		out   **[]model.FailsafePort
	}{
		{"spec.failsafeInboundHostPorts", in.Spec.Inbound, &out.Inbound},
		{"spec.failsafeOutboundHostPorts", in.Spec.Outbound, &out.Outbound},
	} {
		if *one.out, err = failsafes(one.in); err != nil {
			failed = errors.Join(failed, invalid(o, "write for example {protocol: tcp, port: 22}; until then the default ports stay open",
				"%s%w", one.field, err))
		}
	}
	switch text := in.Spec.EndpointToHost; strings.ToLower(text) {
	case "":
	case "drop":
		out.EndpointToHost = model.EndpointToHostDrop
	case "accept", "return":
		out.EndpointToHost = strings.ToUpper(text[:1]) + strings.ToLower(text[1:])
	default:
		failed = errors.Join(failed, invalid(o, "write Drop, Return or Accept", "spec.defaultEndpointToHostAction %q is not known", text))
	}
	return out, failed
}

// Ignored returns an error that names what a FelixConfiguration has set, other than Calico's default, that changes which
// packets pass, or how they are refused, and has no effect with weft; nil: nothing, or it is another object.
func Ignored(o store.Object) error {
	var in struct {
		Spec struct {
			Deny     string   `json:"iptablesFilterDenyAction"`
			NftDeny  string   `json:"nftablesFilterDenyAction"`
			Spoofing string   `json:"workloadSourceSpoofing"`
			External []string `json:"externalNodesList"`
			Invalid  *bool    `json:"disableConntrackInvalidCheck"`
			Prefix   string   `json:"interfacePrefix"`
		} `json:"spec"`
	}
	if !IsFelixConfiguration(o.Key) {
		return nil
	}
	if err := decode(o, &in); err != nil {
		return err
	}
	var all error
	ignored := func(is bool, field, value, instead string) {
		if is {
			all = errors.Join(all, invalid(o, instead, "spec.%s %s has no effect", field, value))
		}
	}
	const drops = "denied packets are dropped"
	ignored(strings.EqualFold(in.Spec.Deny, "Reject"), "iptablesFilterDenyAction", in.Spec.Deny, drops)
	ignored(strings.EqualFold(in.Spec.NftDeny, "Reject"), "nftablesFilterDenyAction", in.Spec.NftDeny, drops)
	ignored(strings.EqualFold(in.Spec.Spoofing, "Any"), "workloadSourceSpoofing", in.Spec.Spoofing,
		"permit it to pods by feature_control.source_prefixes in the plugin's configuration")
	ignored(len(in.Spec.External) > 0, "externalNodesList", strings.Join(in.Spec.External, ", "),
		"tunnels from there are what policies at host endpoints allow")
	ignored(in.Spec.Invalid != nil && !*in.Spec.Invalid, "disableConntrackInvalidCheck", "false",
		"packets without a connection are evaluated as new ones; leave it out if that is what you want")
	ignored(in.Spec.Prefix != "" && in.Spec.Prefix != interfacePrefix, "interfacePrefix", in.Spec.Prefix,
		"interfaces that Calico made for pods are found by the prefix cali only, and no policy is enforced at others "+
			"until weft attaches their pods again")
	return all
}

// interfacePrefix is that of Calico's own plugin.
const interfacePrefix = "cali"

type failsafePort struct {
	Protocol string `json:"protocol"`
	Port     uint16 `json:"port"`
	Net      string `json:"net"`
}

// failsafes decodes ports that stay open; nil if one of them is invalid.
func failsafes(in *[]failsafePort) (*[]model.FailsafePort, error) {
	if in == nil {
		return nil, nil
	}
	out := []model.FailsafePort{}
	for i, p := range *in {
		one := model.FailsafePort{Port: p.Port, Protocol: model.TCP}
		if p.Protocol != "" {
			transport, is := transports()[protocols()[strings.ToLower(p.Protocol)]]
			if !is {
				return nil, fmt.Errorf("[%d].protocol %q is none of tcp, udp and sctp", i, p.Protocol)
			}
			one.Protocol = transport
		}
		if p.Port == 0 {
			return nil, fmt.Errorf("[%d].port is missing", i)
		}
		if p.Net != "" {
			all, err := nets(fmt.Sprintf("[%d].net", i), []string{p.Net})
			if err != nil {
				return nil, err
			}
			one.Net = all[0]
		}
		out = append(out, one)
	}
	return &out, nil
}

// HostEndpointController returns the part of the object that creates host endpoints for all nodes; nil if it cannot be read.
// Of an invalid template the error says why it is left out.
func HostEndpointController(o store.Object) (*model.HostEndpointController, error) {
	var in struct {
		Spec struct {
			Controllers struct {
				Node struct {
					HostEndpoint struct {
						AutoCreate string `json:"autoCreate"`
						Default    string `json:"createDefaultHostEndpoint"`
						Templates  []struct {
							Name       string            `json:"generateName"`
							Networks   []string          `json:"interfaceCIDRs"`
							Interfaces string            `json:"interfacePattern"`
							Labels     map[string]string `json:"labels"`
							Nodes      string            `json:"nodeSelector"`
						} `json:"templates"`
					} `json:"hostEndpoint"`
				} `json:"node"`
			} `json:"controllers"`
		} `json:"spec"`
	}
	if err := decode(o, &in); err != nil {
		return nil, err
	}
	c := in.Spec.Controllers.Node.HostEndpoint
	out := &model.HostEndpointController{Enabled: c.AutoCreate == "Enabled", Default: c.Default != "Disabled"}
	var failed error
	for i, t := range c.Templates {
		field := fmt.Sprintf("spec.controllers.node.hostEndpoint.templates[%d]", i)
		one := model.HostEndpointTemplate{Name: t.Name, Labels: t.Labels, Interfaces: t.Interfaces}
		var err error
		if one.Networks, err = nets(field+".interfaceCIDRs", t.Networks); err == nil {
			one.Nodes, err = model.ParseExpression(t.Nodes)
		}
		if err == nil {
			_, err = regexp.Compile(t.Interfaces)
		}
		if err == nil && t.Interfaces == "" && len(t.Networks) == 0 {
			err = errors.New("neither interfaceCIDRs nor interfacePattern is set")
		}
		if err != nil {
			failed = errors.Join(failed, invalid(o, "compare with Calico's reference; until then the template creates nothing", "%s: %w", field, err))
			continue
		}
		out.Templates = append(out.Templates, one)
	}
	return out, failed
}
