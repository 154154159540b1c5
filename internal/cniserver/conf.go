// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/weft-net/weft/internal/cni"
	"github.com/weft-net/weft/internal/model"
)

// delegate is one network of a call.
type delegate struct {
	network model.Network // as its plugins get it
	request model.Request
	// prev is what the runtime's other plugins made before this one, for the first delegate only.
	prev *model.Result
}

// agentConf is the agent form of a plugin's configuration.
type agentConf struct {
	Name string `json:"name"`
	// Socket is weft-cni's business, but it would take the default for one that it cannot read.
	Socket    string            `json:"socket"`
	Delegates []json.RawMessage `json:"delegates"`
	// RuntimeConfig is what the runtime provides for the declared capabilities.
	RuntimeConfig map[string]any `json:"runtimeConfig"`
	Args          struct {
		CNI map[string]any `json:"cni"`
	} `json:"args"`
}

const example = `"delegates": [{"type": "ptp", "ipam": {…}}]`

// parseDelegates reads the networks of a call from its configuration.
func parseDelegates(call cni.Call) ([]delegate, error) {
	var conf agentConf
	if err := cni.Decode("network "+call.Request.Network, call.Conf, &conf); err != nil {
		return nil, err
	}
	if len(conf.Delegates) == 0 {
		return nil, model.Faultf(model.CodeInvalidConf, example, "network %s: delegates: missing or empty", conf.Name)
	}
	if len(conf.Delegates) > maxDelegates {
		return nil, model.Faultf(model.CodeInvalidConf, "", "network %s: delegates: %d networks, at most %d",
			conf.Name, len(conf.Delegates), maxDelegates)
	}
	outer, err := outerOf(call)
	if err != nil {
		return nil, err
	}
	all := make([]delegate, 0, len(conf.Delegates))
	for i, raw := range conf.Delegates {
		d, err := parseDelegate(call, conf, i, raw)
		if err != nil {
			return nil, at(err, conf.Name, i)
		}
		all = append(all, d)
	}
	all[0].prev = outer
	return all, nil
}

// maxDelegates bounds the networks of one pod.
const maxDelegates = 64

// outerOf is the prevResult of the call.
func outerOf(call cni.Call) (*model.Result, error) {
	if call.Command == cni.GC || call.Command == cni.Status {
		return nil, nil
	}
	_, prev, err := cni.ParsePlugin(call.Conf)
	return prev, err
}

func parseDelegate(call cni.Call, conf agentConf, i int, raw json.RawMessage) (delegate, error) {
	raw, err := complete(raw, conf.Name, call.Request.CNIVersion, i == 0)
	if err != nil {
		return delegate{}, err
	}
	n, err := cni.ParseNetwork(raw)
	if err != nil {
		return delegate{}, err
	}
	if slices.ContainsFunc(n.Plugins, func(p model.PluginConf) bool { return p.Type == cni.ShimType }) {
		return delegate{}, cni.NestedShim()
	}
	caps, args := conf.RuntimeConfig, conf.Args.CNI
	r := call.Request
	if i > 0 {
		caps, args = podWide(caps), nil
		if r.IfName = ifName(i, r.IfName); r.IfName != "" && r.IfName == call.Request.IfName {
			return delegate{}, model.Faultf(model.CodeInvalidConf, "give the first network another CNI_IFNAME",
				"interface %s: the name is taken by the first network", r.IfName)
		}
		r.Args = withoutAddress(r.Args)
	}
	r.Network, r.Part = n.Name, partOf(call.Request)
	n, err = cni.Derive(n, caps, args)
	return delegate{network: n, request: r}, err
}

// ifName is what a call's delegate i calls its interface; a call about no attachment has no name.
func ifName(i int, first string) string {
	if i == 0 || first == "" {
		return first
	}
	return "net" + strconv.Itoa(i)
}

// partOf names the runtime's own call.
func partOf(r model.Request) string { return r.Network + "/" + r.IfName }

// complete fills in what a delegate leaves to the list around it: the version and, for the first one, the name.
func complete(raw json.RawMessage, name, version string, first bool) (json.RawMessage, error) {
	var o map[string]json.RawMessage
	if err := json.Unmarshal(raw, &o); err != nil {
		return nil, model.Faultf(model.CodeDecode, "a network is a JSON object", "%w", err)
	}
	if o == nil {
		return nil, model.Faultf(model.CodeDecode, "a network is a JSON object", "null")
	}
	changed := false
	fill := func(key, value string) {
		if _, ok := o[key]; !ok {
			o[key], changed = json.RawMessage(strconv.Quote(value)), true
		}
	}
	if _, ok := o["cniVersions"]; !ok {
		fill("cniVersion", version)
	}
	if first {
		fill("name", name)
	}
	if !changed {
		return raw, nil
	}
	return json.Marshal(o)
}

// podWide keeps of the runtime's capabilities those that speak of the pod; the others (addresses, ports, bandwidth) are
// meant for its first network alone.
func podWide(caps map[string]any) map[string]any {
	kept := map[string]any{}
	for _, name := range []string{"io.kubernetes.cri.pod-annotations", "cgroupPath"} {
		if v, ok := caps[name]; ok {
			kept[name] = v
		}
	}
	return kept
}

// withoutAddress takes the pairs of CNI_ARGS away that are meant for the first network alone.
func withoutAddress(args [][2]string) [][2]string {
	var kept [][2]string
	for _, pair := range args {
		if pair[0] != "IP" && pair[0] != "MAC" && pair[0] != "GATEWAY" {
			kept = append(kept, pair)
		}
	}
	return kept
}

// at says in which delegate an error is.
func at(err error, name string, i int) error {
	var f *model.Fault
	if !errors.As(err, &f) {
		return fmt.Errorf("network %s: delegates[%d]: %w", name, i, err)
	}
	return &model.Fault{Code: f.Code, Hint: f.Hint, Msg: fmt.Sprintf("network %s: delegates[%d]: %s", name, i, f.Msg), Err: f.Err}
}
