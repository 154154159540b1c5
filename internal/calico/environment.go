// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

// daemonSets is the kind of the object that runs Felix; felixNamespaces are those where manifests and the operator create it.
func daemonSets() store.Kind {
	return store.Kind{Group: "apps", Version: "v1", Kind: "DaemonSet", Resource: "daemonsets", Namespaced: true}
}

func felixNamespaces() []string { return []string{"kube-system", "calico-system"} }

// felixName is the name of the DaemonSet and of its container; defaultFelix is the FelixConfiguration of all nodes.
const felixName, defaultFelix = "calico-node", "default"

// environment returns the settings of Felix that its DaemonSets have in their environment, which goes before all
// FelixConfigurations, and that would be lost: those that change verdicts, and that weft reads from FelixConfigurations
// only.
func environment(ctx context.Context, objects store.Objects) ([]string, error) {
	kind := daemonSets()
	var configurations []model.FelixConfiguration
	var all []string
	for _, namespace := range felixNamespaces() {
		o, err := objects.Get(ctx, kind, kind.Key(namespace, felixName))
		if errors.Is(err, store.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("DaemonSet %s/%s: %w", namespace, felixName, err)
		}
		if configurations == nil {
			if configurations, err = felixConfigurations(ctx, objects); err != nil {
				return nil, err
			}
		}
		lost, err := lostSettings(o, configurations)
		if err != nil {
			return nil, err
		}
		etcd, err := usesEtcd(o)
		if err != nil {
			return nil, err
		}
		if etcd {
			lost = append(lost, fmt.Sprintf("policies in its etcd are not read; write them to manifests by weft ipam import "+
				"--from calico --calico-config FILE --calico-policies FILE, apply these, and then: kubectl -n %s annotate daemonset "+
				"%s %s=%s", namespace, felixName, etcdAnnotation, etcdImported))
		}
		for _, text := range lost {
			all = append(all, o.Key.String()+" ("+text+")")
		}
	}
	return all, nil
}

// etcdAnnotation, with the value etcdImported, of Felix' DaemonSet: the policies in its etcd are in Kubernetes.
const etcdAnnotation, etcdImported = "weft.dev/etcd-policies", "imported"

// usesEtcd reports whether a DaemonSet's Felix reads policies from an etcd, which have not been imported.
func usesEtcd(o store.Object) (bool, error) {
	var in struct {
		Metadata struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	if err := decode(o, &in); err != nil {
		return false, err
	}
	all, err := variables(o)
	if err != nil || in.Metadata.Annotations[etcdAnnotation] == etcdImported {
		return false, err
	}
	endpoints, typ := false, ""
	for _, v := range all {
		switch strings.ToLower(v.Name) {
		case "etcd_endpoints", "felix_etcdendpoints":
			endpoints = true
		case "datastore_type", "felix_datastoretype":
			typ = v.Value
			endpoints = endpoints || len(v.From) > 0 // in another object: it may be an etcd
		}
	}
	return strings.EqualFold(typ, "etcdv3") || typ == "" && endpoints, nil
}

// felixConfigurations returns the readable ones, those of Calico's API server where nothing else has the name.
func felixConfigurations(ctx context.Context, objects store.Objects) ([]model.FelixConfiguration, error) {
	out := []model.FelixConfiguration{}
	for _, kind := range FelixConfigurations() {
		found, err := objects.List(ctx, kind)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return nil, fmt.Errorf("%s of %s: %w", kind.Resource, kind.Group, err)
		}
		for _, o := range found {
			f, _ := FelixConfiguration(o) // Unenforced names what is invalid
			if f != nil && !slices.ContainsFunc(out, func(have model.FelixConfiguration) bool { return have.Name == f.Name }) {
				out = append(out, *f)
			}
		}
	}
	return out, nil
}

// setting is one of Felix' environment. Its name there is written in any case.
type setting struct{ variable, text string }

// variable is one of a container's environment. From is set if its value is in another object.
type variable struct {
	Name  string          `json:"name"`
	Value string          `json:"value"`
	From  json.RawMessage `json:"valueFrom"`
}

// variables returns those of a DaemonSet's container of Felix' name.
func variables(o store.Object) (out []variable, err error) {
	var in struct {
		Spec struct {
			Template struct {
				Spec struct {
					Containers []struct {
						Name string     `json:"name"`
						Env  []variable `json:"env"`
					} `json:"containers"`
				} `json:"spec"`
			} `json:"template"`
		} `json:"spec"`
	}
	if err := decode(o, &in); err != nil {
		return nil, err
	}
	for _, c := range in.Spec.Template.Spec.Containers {
		if c.Name == felixName {
			out = append(out, c.Env...)
		}
	}
	return out, nil
}

// settingsOf returns the FELIX_ variables of a DaemonSet's container of its name. Those whose values are in other objects
// are left out, and an error each.
func settingsOf(o store.Object) (map[string]setting, []error, error) {
	all, err := variables(o)
	if err != nil {
		return nil, nil, err
	}
	out := map[string]setting{}
	var indirect []error
	for _, e := range all {
		name, is := strings.CutPrefix(strings.ToLower(e.Name), "felix_")
		if !is || !slices.Contains(verdictSettings(), name) {
			continue
		}
		if len(e.From) > 0 {
			indirect = append(indirect, fmt.Errorf("the value of %s is in another object; write it into FelixConfiguration default, and remove the variable", e.Name))
			delete(out, name)
			continue
		}
		out[name] = setting{e.Name, e.Value}
	}
	return out, indirect, nil
}

// The settings that change which packets pass and that weft has, too.
const (
	toHostSetting   = "defaultendpointtohostaction"
	inboundSetting  = "failsafeinboundhostports"
	outboundSetting = "failsafeoutboundhostports"
)

// otherSettings are those that weft does not have, with the value that changes nothing.
func otherSettings() map[string]string {
	return map[string]string{
		"iptablesfilterdenyaction": "drop", "nftablesfilterdenyaction": "drop", "workloadsourcespoofing": "disabled",
		"externalnodescidrlist": "", "disableconntrackinvalidcheck": "true", "interfaceprefix": interfacePrefix,
	}
}

func verdictSettings() []string {
	out := []string{toHostSetting, inboundSetting, outboundSetting}
	for name := range otherSettings() {
		out = append(out, name)
	}
	return out
}

// lostSettings describes what of a DaemonSet's environment FelixConfigurations do not have, sorted.
func lostSettings(o store.Object, configurations []model.FelixConfiguration) ([]string, error) {
	env, lost, err := settingsOf(o)
	if err != nil {
		return nil, err
	}
	setToHost := func(f model.FelixConfiguration) bool { return f.EndpointToHost != "" }
	toHost, is := env[toHostSetting]
	drops := strings.EqualFold(toHost.text, model.EndpointToHostDrop)
	switch {
	case is && (drops && !configured(configurations, setToHost) || slices.ContainsFunc(configurations,
		func(f model.FelixConfiguration) bool {
			return setToHost(f) && drops != (f.EndpointToHost == model.EndpointToHostDrop)
		})):
		lost = append(lost, toHost.lost("defaultEndpointToHostAction"))
	case !is && len(lost) == 0 && !configured(configurations, setToHost):
		lost = append(lost, errors.New("FELIX_DEFAULTENDPOINTTOHOSTACTION is not set, so that Calico denies what pods send to their node; "+
			"write spec.defaultEndpointToHostAction, Drop or Accept, into FelixConfiguration default"))
	}
	for _, one := range []struct {
		name, field string
		of          func(model.FelixConfiguration) *[]model.FailsafePort
	}{
		{inboundSetting, "failsafeInboundHostPorts", func(f model.FelixConfiguration) *[]model.FailsafePort { return f.Inbound }},
		{outboundSetting, "failsafeOutboundHostPorts", func(f model.FelixConfiguration) *[]model.FailsafePort { return f.Outbound }},
	} {
		s, is := env[one.name]
		if !is {
			continue
		}
		want, err := portList(s.text)
		if err != nil {
			lost = append(lost, fmt.Errorf("%s %q: %w", s.variable, s.text, err))
			continue
		}
		if !configured(configurations, func(f model.FelixConfiguration) bool { return one.of(f) != nil }) ||
			slices.ContainsFunc(configurations, func(f model.FelixConfiguration) bool {
				have := one.of(f)
				return have != nil && !reflect.DeepEqual(sortedPorts(*have), sortedPorts(want))
			}) {
			lost = append(lost, s.lost(one.field))
		}
	}
	for name, without := range otherSettings() {
		if s, is := env[name]; is && !strings.EqualFold(s.text, without) {
			lost = append(lost, fmt.Errorf("%s %q has no effect; see weft's reference of Calico's policies, and remove it", s.variable, s.text))
		}
	}
	out := make([]string, 0, len(lost))
	for _, l := range lost {
		out = append(out, l.Error())
	}
	slices.Sort(out)
	return out, nil
}

func (s setting) lost(field string) error {
	return fmt.Errorf("%s %q is not what FelixConfigurations have, which is what weft reads; write it as spec.%s of FelixConfiguration default, and of others that set the field",
		s.variable, s.text, field)
}

// configured reports whether the configuration of all nodes has a setting.
func configured(all []model.FelixConfiguration, has func(model.FelixConfiguration) bool) bool {
	return slices.ContainsFunc(all, func(f model.FelixConfiguration) bool { return f.Name == defaultFelix && has(f) })
}

// portList parses ports as Felix' environment has them: PORT, PROTOCOL:PORT or PROTOCOL:PREFIX:PORT, the prefix of IPv6 in
// brackets; "none" is no port.
func portList(text string) ([]model.FailsafePort, error) {
	var in []failsafePort
	if strings.EqualFold(text, "none") {
		text = ""
	}
	for one := range strings.SplitSeq(text, ",") {
		one = strings.TrimSpace(one)
		if one == "" {
			continue
		}
		p := failsafePort{Protocol: "tcp"}
		number := one
		if protocol, rest, is := strings.Cut(one, ":"); is {
			p.Protocol, number = protocol, rest
		}
		if i := strings.LastIndex(number, ":"); i >= 0 {
			p.Net, number = strings.Trim(number[:i], "[]"), number[i+1:]
			if a, err := netip.ParseAddr(p.Net); err == nil {
				p.Net = netip.PrefixFrom(a, a.BitLen()).String()
			}
		}
		n, err := strconv.ParseUint(number, 10, 16)
		if err != nil {
			return nil, fmt.Errorf("%q is no port", one)
		}
		p.Port = uint16(n)
		in = append(in, p)
	}
	if in == nil {
		in = []failsafePort{}
	}
	out, err := failsafes(&in)
	if err != nil {
		return nil, err
	}
	return *out, nil
}

func sortedPorts(in []model.FailsafePort) []model.FailsafePort {
	out := slices.Clone(in)
	slices.SortFunc(out, func(a, b model.FailsafePort) int {
		return cmp.Or(cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Net.String(), b.Net.String()))
	})
	return slices.Compact(out)
}
