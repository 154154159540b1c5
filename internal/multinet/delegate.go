// SPDX-License-Identifier: Apache-2.0

package multinet

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/weft-net/weft/internal/cni"
	"github.com/weft-net/weft/internal/cni/wire"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/plugin"
)

// Attachment is one network of a call.
type Attachment struct {
	// Label names the network in messages.
	Label   string
	Network model.Network // as its plugins get it
	Request model.Request
	// Prev is the result of the runtime's earlier plugins, for the first network only.
	Prev *model.Result
	// NamespaceLabels are those of the pod's namespace, nil if unknown.
	NamespaceLabels map[string]string
	// Parallel allows it to be attached concurrently with its neighbors.
	Parallel bool

	// deviceInfo is the device information file of the device plugin.
	deviceInfo string
}

// source is a network before it is prepared for its plugins.
type source struct {
	label string
	raw   json.RawMessage
	// name is the default of the network's name; empty: the configuration must have one.
	name string
	// bare are plugins without predecessors: they get an empty result.
	bare bool
	// ifName is the name of the interface, if it is determined.
	ifName string
	// routes changes its default routes; nil: they are as its plugins create them.
	routes *plugin.DefaultRouteConf
	podRequest
}

// podRequest is what a pod requests of a network besides its configuration.
type podRequest struct {
	selection *Selection
	device    string // the device for the network's interface
	resource  string // the device's
	missing   string // the resource of the network, if the pod has no device of it
}

// Delegates returns the networks that a configuration contains, without those that it names. On DEL they have no
// prevResult; see PrevOfDel.
func (r *Resolver) Delegates(call cni.Call, s Settings) ([]Attachment, error) {
	outer, err := outerOf(call)
	if err != nil {
		return nil, err
	}
	all := make([]Attachment, 0, len(s.Delegates))
	for i, raw := range s.Delegates {
		d, err := r.attachment(call, s, i, delegateSource(s, i, raw))
		if err != nil {
			return nil, inDelegate(err, s.Name, i)
		}
		all = append(all, d)
	}
	if len(all) > 0 {
		all[0].Prev = outer
	}
	return all, nil
}

func delegateSource(s Settings, i int, raw json.RawMessage) source {
	src := source{raw: raw}
	if i == 0 {
		src.name = s.Name
	}
	return src
}

// outerOf returns the prevResult of the call.
func outerOf(call cni.Call) (*model.Result, error) {
	if call.Command == cni.Del || call.Command == cni.GC || call.Command == cni.Status || !hasPrev(call) {
		return nil, nil
	}
	return cni.PrevResult(call.Conf)
}

// PrevOfDel returns the prevResult of a DEL, nil if it has none that can be read: the DEL continues without it. It is
// needed only if the attachment has no record.
func PrevOfDel(call cni.Call) *model.Result {
	if !hasPrev(call) {
		return nil
	}
	prev, err := cni.PrevResult(call.Conf)
	if err != nil {
		return nil
	}
	return prev
}

func hasPrev(call cni.Call) bool { return bytes.Contains(call.Conf, []byte(`"prevResult"`)) }

// attachment prepares network i of a call for its plugins.
func (r *Resolver) attachment(call cni.Call, s Settings, i int, src source) (Attachment, error) {
	raw, err := complete(src.raw, src.name, call.Request.CNIVersion)
	if err != nil {
		return Attachment{}, err
	}
	parsed, err := r.parsed.get(raw)
	if err != nil {
		return Attachment{}, err
	}
	n := parsed.network
	if slices.ContainsFunc(n.Plugins, func(p model.PluginConf) bool { return cni.IsShim(p.Type) }) {
		return Attachment{}, cni.NestedShim()
	}
	caps, args := s.RuntimeConfig, s.Args.CNI
	req := call.Request
	if i > 0 {
		caps, args = podWide(caps), nil
		if req.IfName = ifName(i, req.IfName, src); req.IfName != "" && req.IfName == call.Request.IfName {
			return Attachment{}, model.Errorf(model.CodeInvalidConf, "set another CNI_IFNAME for the first network",
				"interface %s: the name is taken by the first network", req.IfName)
		}
		req.Args = withoutAddress(req.Args)
	}
	req.Network, req.Part = n.Name, Part(call.Request)
	req.CNIPath = withBin(s, req.CNIPath)
	wanted, err := src.want(&n, &req)
	if err != nil {
		return Attachment{}, err
	}
	if device := src.id(); device != "" {
		wanted.caps[deviceFileCap] = deviceFile(src.label, req)
	}
	caps, args = merged(caps, wanted.caps), merged(args, wanted.args)
	if src.device == "" {
		n, err = parsed.derive(caps, args, src.routes)
	} else if n, err = cni.Derive(n, caps, args); err == nil { // each plugin has the pod's device
		err = withRoutes(&n, src.routes)
	}
	if err != nil {
		return Attachment{}, err
	}
	label := src.label
	if label == "" {
		label = n.Name
	}
	return Attachment{
		Label: label, Network: n, Request: req, Parallel: s.Parallel && i > 0 && !src.bare, deviceInfo: src.info(s),
	}, nil
}

// ifName returns the interface name of network i of a call; a call without an attachment has none.
func ifName(i int, first string, src source) string {
	switch {
	case i == 0 || first == "":
		return first
	case src.ifName != "":
		return src.ifName
	case src.selection != nil && src.selection.Interface != "":
		return src.selection.Interface
	}
	return "net" + strconv.Itoa(i)
}

// Part identifies the runtime's own call.
func Part(r model.Request) string { return r.Network + "/" + r.IfName }

// complete adds a network's default version and name. They come first in the object, so that an existing key with a
// value that is no string overrides them.
func complete(raw json.RawMessage, name, version string) (json.RawMessage, error) {
	body, ok := bytes.CutPrefix(bytes.TrimLeft(raw, " \t\r\n"), []byte("{"))
	if !ok {
		return nil, model.Errorf(model.CodeDecode, "a network is a JSON object", "%.40q is no object", string(raw))
	}
	head := []byte{'{'}
	fill := func(key, value string) {
		if have, ok := wire.Field(raw, key); !ok || have == "" {
			head = append(wire.AppendString(append(wire.AppendString(head, key), ':'), value), ',')
		}
	}
	if !bytes.Contains(raw, []byte(`"cniVersions"`)) {
		fill("cniVersion", version)
	}
	if name != "" {
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

// noVersion reports whether a network leaves the version to the node's configuration.
func (src source) noVersion() bool {
	have, ok := wire.Field(src.raw, "cniVersion")
	return (!ok || have == "") && !bytes.Contains(src.raw, []byte(`"cniVersions"`))
}

// podWide returns the runtime's capabilities about the whole pod; the others (addresses, ports, bandwidth) apply to its
// first network only.
func podWide(caps map[string]any) map[string]any {
	kept := map[string]any{}
	for _, name := range []string{annotationsCap, "cgroupPath"} {
		if v, ok := caps[name]; ok {
			kept[name] = v
		}
	}
	return kept
}

// withoutAddress removes the pairs of CNI_ARGS that apply to the first network only.
func withoutAddress(args [][2]string) [][2]string {
	var kept [][2]string
	for _, pair := range args {
		if pair[0] != "IP" && pair[0] != "MAC" && pair[0] != "GATEWAY" {
			kept = append(kept, pair)
		}
	}
	return kept
}

// inDelegate adds the delegate to an error.
func inDelegate(err error, name string, i int) error {
	where := fmt.Sprintf("network %s: delegates[%d]", name, i)
	var f *model.Error
	if !errors.As(err, &f) {
		return fmt.Errorf("%s: %w", where, err)
	}
	return within(err, where)
}

// IfName returns the default interface name of network i of a call.
func IfName(i int, first string) string { return ifName(i, first, source{}) }
