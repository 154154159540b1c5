// SPDX-License-Identifier: Apache-2.0

package multinet

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/cni"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/plugin"
)

// wanted is what a selection adds to the configuration of a network's plugins.
type wanted struct {
	caps map[string]any // runtimeConfig
	args map[string]any // args.cni
}

// want converts the pod's requests to capabilities and arguments. A plugin must declare each capability, or read the request
// in CNI_ARGS: otherwise it would be ignored.
func (a podRequest) want(n *model.Network, r *model.Request) (wanted, error) {
	w := wanted{caps: map[string]any{}, args: map[string]any{}}
	if a.missing != "" && slices.ContainsFunc(n.Plugins, isMacvtap) {
		return w, model.Errorf(model.CodeInvalidConf,
			"request it in resources.limits of a container; KubeVirt 1.9 does it for VMs if its gate ExternalNetResourceInjection is disabled",
			"plugin macvtap: the pod has no device of resource %s", a.missing)
	}
	if a.device != "" {
		if err := withDevice(n, a.device); err != nil {
			return w, err
		}
		w.caps["deviceID"] = a.device
	}
	s := a.selection
	if s == nil {
		return w, nil
	}
	maps.Copy(w.args, s.CNIArgs)
	if s.Claim != "" {
		w.args["ipam-claim-reference"] = s.Claim
	}
	if len(s.IPs) > 0 {
		r.Args = append(r.Args, [2]string{"IP", strings.Join(s.IPs, ",")})
	}
	if s.MAC != "" {
		r.Args = append(r.Args, [2]string{"MAC", s.MAC})
	}
	for _, c := range s.capabilities() {
		declared := slices.ContainsFunc(n.Plugins, func(p model.PluginConf) bool { return p.Capabilities[c.name] })
		switch {
		case !declared && c.key == "mac" && slices.ContainsFunc(n.Plugins, readsMAC):
			continue
		case !declared:
			return w, model.Errorf(model.CodeUnsupportedField,
				`add "capabilities": {"`+c.name+`": true} to the plugin that serves it`,
				"%s: no plugin of network %s declares the capability %s", c.key, n.Name, c.name)
		}
		w.caps[c.name] = c.value
	}
	return w, nil
}

// isMacvtap reports whether a plugin attaches a device that the kubelet must have allocated.
func isMacvtap(p model.PluginConf) bool { return p.Type == plugin.MacvtapType }

// readsMAC reports whether a plugin, weft's or the reference one, has the MAC address that is in CNI_ARGS. KubeVirt requests one
// for each interface with a macAddress, and Multus passes it in this way without the capability.
func readsMAC(p model.PluginConf) bool {
	return slices.Contains([]string{"bridge", "macvlan", "tap", "tuning", plugin.MacvtapType, plugin.OwnMacvtapType}, p.Type)
}

// capability is the name of a selection's key in a plugin's configuration.
type capability struct {
	key, name string
	value     any
}

// capabilities returns those that the selection needs.
func (s *Selection) capabilities() []capability {
	var all []capability
	add := func(yes bool, key, name string, value any) {
		if yes {
			all = append(all, capability{key, name, value})
		}
	}
	add(len(s.IPs) > 0, "ips", "ips", s.IPs)
	add(s.MAC != "", "mac", "mac", s.MAC)
	add(s.InfinibandGUID != "", "infiniband-guid", "infinibandGUID", s.InfinibandGUID)
	add(present(s.PortMappings), "portMappings", "portMappings", s.PortMappings)
	add(present(s.Bandwidth), "bandwidth", "bandwidth", s.Bandwidth)
	add(s.DeviceID != "", "deviceID", "deviceID", s.DeviceID)
	return all
}

// present reports whether a value is not empty.
func present(raw json.RawMessage) bool {
	text := strings.TrimSpace(string(raw))
	return text != "" && text != "null" && text != "[]" && text != "{}"
}

// withDevice sets the device in every plugin of a network, by both names that plugins read.
func withDevice(n *model.Network, device string) error {
	plugins := make([]model.PluginConf, 0, len(n.Plugins))
	for _, p := range n.Plugins {
		var keys map[string]json.RawMessage
		if err := cni.Decode("plugin "+p.Type, p.Raw, &keys); err != nil {
			return err
		}
		id, err := json.Marshal(device)
		if err != nil {
			return err
		}
		keys["deviceID"], keys["pciBusID"] = id, id
		if _, ours := plugin.ParseMacvtapDevice(device); ours && p.Type == plugin.MacvtapType {
			p.Type, keys["type"] = plugin.OwnMacvtapType, json.RawMessage(`"`+plugin.OwnMacvtapType+`"`)
		}
		if p.Raw, err = json.Marshal(keys); err != nil {
			return err
		}
		plugins = append(plugins, p)
	}
	n.Plugins = plugins
	return nil
}

// merged returns both maps in one; the second overrides the first.
func merged(a, b map[string]any) map[string]any {
	if len(b) == 0 {
		return a
	}
	out := map[string]any{}
	maps.Copy(out, a)
	maps.Copy(out, b)
	return out
}
