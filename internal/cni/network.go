// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"encoding/json"
	"errors"
	"strings"

	"github.com/weft-net/weft/internal/model"
)

const networkNoun = "network configuration"

// ParseNetwork parses a configuration list, or a single plugin's configuration as a list of one (the files .conf and
// .json). It chooses the highest supported version that a list offers. The plugins' Raw is as in the file; Derive adds
// what a runtime has to set.
func ParseNetwork(b []byte) (model.Network, error) {
	o, err := parseObject(networkNoun, b)
	if err != nil {
		return model.Network{}, err
	}
	n, err := listKeys(o)
	if err != nil {
		return n, err
	}
	n.Raw = json.RawMessage(b)
	var plugins []json.RawMessage
	if _, ok := o["plugins"]; !ok && o["type"] != nil {
		plugins = []json.RawMessage{json.RawMessage(b)}
	} else if err := o.get(networkNoun, "plugins", &plugins); err != nil {
		return n, err
	}
	if len(plugins) == 0 {
		return n, model.Errorf(model.CodeInvalidConf, `a list has "plugins", a single plugin's configuration has "type"`,
			"network %q: no plugins", n.Name)
	}
	for i, raw := range plugins {
		p, err := parsePluginConf(raw)
		if err != nil {
			return n, inPlugin(err, n.Name, i)
		}
		n.Plugins = append(n.Plugins, p)
	}
	return n, nil
}

// listKeys parses the keys of a list, except for its plugins.
func listKeys(o object) (model.Network, error) {
	var n model.Network
	var version string
	var versions []string
	var check, gc, inlined flag
	err := errors.Join(o.get(networkNoun, "name", &n.Name), o.get(networkNoun, "cniVersion", &version),
		o.get(networkNoun, "cniVersions", &versions), o.get(networkNoun, "disableCheck", &check),
		o.get(networkNoun, "disableGC", &gc), o.get(networkNoun, "loadOnlyInlinedPlugins", &inlined))
	if err != nil {
		return n, model.Errorf(model.CodeDecode, "", "%w", err)
	}
	if err := checkNetworkName(n.Name); err != nil {
		return n, err
	}
	n.DisableCheck, n.DisableGC = bool(check), bool(gc)
	n.CNIVersion, err = negotiate(version, versions)
	return n, err
}

// ParsePlugin parses the standard input of a plugin: its own configuration, as a network of one plugin, and the result
// of the plugins before it. The plugin's Raw is without prevResult and other keys of the protocol. The network is
// complete even if the error is about prevResult: a DEL continues without it.
func ParsePlugin(b []byte) (model.Network, *model.Result, error) {
	o, err := parseObject(networkNoun, b)
	if err != nil {
		return model.Network{}, nil, err
	}
	n, err := listKeys(o)
	if err != nil {
		return n, nil, err
	}
	n.Raw = json.RawMessage(b)
	prev, bad := prevResult(o, n.CNIVersion)
	delete(o, "prevResult")
	delete(o, "cniVersions")
	for key := range o {
		if strings.HasPrefix(key, "cni.dev/") {
			delete(o, key)
		}
	}
	raw, err := o.raw()
	if err != nil {
		return n, nil, err
	}
	p, err := parsePluginConf(raw)
	if err != nil {
		return n, nil, err
	}
	delete(o, "capabilities")
	if p.Raw, err = o.raw(); err != nil {
		return n, nil, err
	}
	n.Plugins = []model.PluginConf{p}
	return n, prev, bad
}

// PrevResult returns the previous result in a plugin's configuration, nil if it has none.
func PrevResult(b []byte) (*model.Result, error) {
	o, err := parseObject(networkNoun, b)
	if err != nil {
		return nil, err
	}
	n, err := listKeys(o)
	if err != nil {
		return nil, err
	}
	return prevResult(o, n.CNIVersion)
}

// prevResult parses the previous result; one without a version has the configuration's.
func prevResult(o object, version string) (*model.Result, error) {
	raw, ok := o["prevResult"]
	if !ok || string(raw) == "null" {
		return nil, nil
	}
	r, err := parseObject("prevResult", raw)
	if err != nil {
		return nil, err
	}
	if _, ok := r["cniVersion"]; !ok {
		if err := r.set("cniVersion", version); err != nil {
			return nil, err
		}
		if raw, err = r.raw(); err != nil {
			return nil, err
		}
	}
	result, err := ParseResult(raw)
	if err != nil {
		return nil, model.Errorf(model.CodeDecode, "", "prevResult: %w", err)
	}
	return &result, nil
}

func parsePluginConf(raw json.RawMessage) (model.PluginConf, error) {
	p := model.PluginConf{Raw: raw}
	o, err := parseObject("plugin", raw)
	if err != nil {
		return p, err
	}
	if err := errors.Join(o.get("plugin", "type", &p.Type), o.get("plugin", "capabilities", &p.Capabilities)); err != nil {
		return p, model.Errorf(model.CodeDecode, "", "%w", err)
	}
	if err := CheckType(p.Type); err != nil {
		return p, model.Errorf(model.CodeInvalidConf, "", "plugin: type %w", err)
	}
	return p, nil
}

// inPlugin adds the plugin's position in the list to an error.
func inPlugin(err error, network string, i int) error {
	var f *model.Error
	if !errors.As(err, &f) {
		return err
	}
	return model.Errorf(f.Code, f.Hint, "network %q: plugins[%d]: %s", network, i, f.Msg)
}

// flag is a boolean that is also accepted as a string, as libcni does.
type flag bool

// UnmarshalJSON reads true, false, "true" and "false".
func (f *flag) UnmarshalJSON(b []byte) error {
	switch strings.ToLower(strings.Trim(string(b), `"`)) {
	case "true":
		*f = true
	case "false", "null":
		*f = false
	default:
		return errors.New(clip(string(b)) + " is neither true nor false")
	}
	return nil
}
