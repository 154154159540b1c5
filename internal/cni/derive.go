// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"encoding/json"
	"maps"
	"strings"

	"github.com/weft-net/weft/internal/model"
)

// Derive returns a list as its plugins receive it (SPEC section 3, "Deriving request configuration from plugin
// configuration objects"): name and the negotiated version are set, runtimeConfig gets the capabilities that the plugin
// declares and the runtime provides, and capabilities and reserved keys are removed. args, which may be nil, is merged
// into args.cni of every plugin.
func Derive(n model.Network, caps map[string]any, args map[string]any) (model.Network, error) {
	out := n
	out.Plugins = make([]model.PluginConf, 0, len(n.Plugins))
	for i, p := range n.Plugins {
		q, err := derivePlugin(n, p, caps, args)
		if err != nil {
			return n, inPlugin(err, n.Name, i)
		}
		out.Plugins = append(out.Plugins, q)
	}
	return out, nil
}

func derivePlugin(n model.Network, p model.PluginConf, caps, args map[string]any) (model.PluginConf, error) {
	o, err := parseObject("plugin", p.Raw)
	if err != nil {
		return p, err
	}
	for key := range o {
		if strings.HasPrefix(key, "cni.dev/") { // the protocol's
			delete(o, key)
		}
	}
	for _, key := range []string{"capabilities", "prevResult", "cniVersions"} {
		delete(o, key)
	}
	if err := o.set("name", n.Name); err != nil {
		return p, err
	}
	if err := o.set("cniVersion", n.CNIVersion); err != nil {
		return p, err
	}
	if err := addCapabilities(o, p.Capabilities, caps); err != nil {
		return p, err
	}
	if err := addArgs(o, args); err != nil {
		return p, err
	}
	p.Raw, err = o.raw()
	return p, err
}

// addCapabilities sets runtimeConfig to the declared capabilities that the runtime provides. Other keys of an existing
// runtimeConfig are kept, as in libcni.
func addCapabilities(o object, declared map[string]bool, provided map[string]any) error {
	config := map[string]json.RawMessage{}
	if err := o.get("plugin", "runtimeConfig", &config); err != nil {
		return err
	}
	if config == nil {
		config = map[string]json.RawMessage{}
	}
	for name, yes := range declared {
		value, ok := provided[name]
		if !yes || !ok {
			continue
		}
		b, err := json.Marshal(value)
		if err != nil {
			return model.Errorf(model.CodeInvalidConf, "", "capability %s: %w", name, err)
		}
		config[name] = b
	}
	if len(config) == 0 {
		return nil
	}
	return o.set("runtimeConfig", config)
}

func addArgs(o object, args map[string]any) error {
	if len(args) == 0 {
		return nil
	}
	var have map[string]json.RawMessage
	if err := o.get("plugin", "args", &have); err != nil {
		return err
	}
	all := map[string]json.RawMessage{}
	maps.Copy(all, have)
	words := object(all)
	inner := map[string]any{}
	if err := words.get("plugin: args", "cni", &inner); err != nil {
		return err
	}
	merged := map[string]any{}
	maps.Copy(merged, inner)
	maps.Copy(merged, args)
	if err := words.set("cni", merged); err != nil {
		return err
	}
	return o.set("args", words)
}

// WithPrev returns the standard input of a foreign plugin: its configuration with the version and, if there is one, the
// previous result in that version's format.
func WithPrev(p model.PluginConf, cniVersion string, prev *model.Result) ([]byte, error) {
	o, err := parseObject("plugin "+p.Type, p.Raw)
	if err != nil {
		return nil, err
	}
	if err := o.set("cniVersion", cniVersion); err != nil {
		return nil, err
	}
	delete(o, "prevResult")
	delete(o, "capabilities")
	if prev != nil {
		if o["prevResult"], err = FormatResult(*prev, cniVersion); err != nil {
			return nil, err
		}
	}
	return o.raw()
}

// WithValid returns the standard input of a foreign plugin's GC.
func WithValid(p model.PluginConf, cniVersion string, valid []model.AttachmentKey) ([]byte, error) {
	type attachment struct {
		ContainerID string `json:"containerID"`
		IfName      string `json:"ifname"`
	}
	list := make([]attachment, 0, len(valid))
	for _, k := range valid {
		list = append(list, attachment{k.ContainerID, k.IfName})
	}
	b, err := WithPrev(p, cniVersion, nil)
	if err != nil {
		return nil, err
	}
	o, err := parseObject("plugin "+p.Type, b)
	if err != nil {
		return nil, err
	}
	for _, key := range []string{"cni.dev/valid-attachments", "cni.dev/attachments"} {
		if err := o.set(key, list); err != nil {
			return nil, err
		}
	}
	return o.raw()
}
