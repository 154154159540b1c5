// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/weft-net/weft/internal/cni"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/wire"
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
	if call.Command == cni.GC || call.Command == cni.Status || !bytes.Contains(call.Conf, []byte(`"prevResult"`)) {
		return nil, nil
	}
	_, prev, err := cni.ParsePlugin(call.Conf)
	if call.Command == cni.Del {
		return prev, nil // it goes on without
	}
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

// complete fills in what a delegate leaves to the list around it: the version and, for the first one, the name. What is
// filled in stands first: a key that is there after all, with a value that is no string, has the last word.
func complete(raw json.RawMessage, name, version string, first bool) (json.RawMessage, error) {
	body, ok := bytes.CutPrefix(bytes.TrimLeft(raw, " \t\r\n"), []byte("{"))
	if !ok {
		return nil, model.Faultf(model.CodeDecode, "a network is a JSON object", "%.40q is no object", string(raw))
	}
	head := []byte{'{'}
	fill := func(key, value string) {
		if _, ok := wire.Field(raw, key); !ok {
			head = append(wire.AppendString(append(wire.AppendString(head, key), ':'), value), ',')
		}
	}
	if !bytes.Contains(raw, []byte(`"cniVersions"`)) {
		fill("cniVersion", version)
	}
	if first {
		fill("name", name)
	}
	if len(head) == 1 {
		return raw, nil
	}
	if body = bytes.TrimLeft(body, " \t\r\n"); len(body) > 0 && body[0] == '}' {
		head = head[:len(head)-1] // the comma
	}
	return append(head, body...), nil
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
