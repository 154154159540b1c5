// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"slices"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// Tap creates a tap device in the container, for a program such as a hypervisor.
type Tap struct{}

type tapConf struct {
	macSources
	MultiQueue     bool    `json:"multiQueue"`
	MTU            int     `json:"mtu"`
	Owner          *uint32 `json:"owner"`
	Group          *uint32 `json:"group"`
	SELinuxContext string  `json:"selinuxContext"`
	Bridge         string  `json:"bridge"`

	ipam bool // the ipam section names a type
}

// Type returns "tap".
func (Tap) Type() string { return "tap" }

// Capabilities returns the optional interfaces that the plugin implements.
func (t Tap) Capabilities() Capabilities { return Capabilities{MakesInterface: true, Readiness: t} }

// Keys returns the configuration keys, those of the reference plugin.
func (Tap) Keys() []string {
	return interfaceKeys("multiQueue", "mtu", "mac", "owner", "group", "selinuxContext", "bridge")
}

// IPAM returns the ipam section. Without one the device has no addresses.
func (Tap) IPAM(conf model.PluginConf) ([]byte, error) { return ipamSection(conf) }

// Decode parses and validates the configuration: it rejects settings that no tap device can have.
func (Tap) Decode(conf model.PluginConf) (any, error) { return readTap(conf) }

func readTap(conf model.PluginConf) (tapConf, error) {
	var c tapConf
	if err := decode(conf, &c); err != nil {
		return c, err
	}
	section, err := ipamSection(conf)
	if err != nil {
		return c, err
	}
	c.ipam = section != nil
	const unset = 1<<32 - 1
	for _, id := range []struct {
		field string
		value *uint32
	}{{"owner", c.Owner}, {"group", c.Group}} {
		if id.value != nil && *id.value == unset {
			return c, model.Errorf(model.CodeInvalidConf, "remove it for root only", "plugin tap: %s %d is not a valid ID",
				id.field, *id.value)
		}
	}
	for _, r := range c.SELinuxContext {
		if r <= ' ' || r > '~' {
			return c, model.Errorf(model.CodeInvalidConf, "for example system_u:system_r:container_t:s0",
				"plugin tap: selinuxContext %q is not a context", c.SELinuxContext)
		}
	}
	if c.Bridge != "" {
		if err := checkLinkName(conf, "bridge", c.Bridge); err != nil {
			return c, err
		}
	}
	if _, err := c.mac(conf, model.Request{}); err != nil {
		return c, err
	}
	return c, checkMTU(conf, c.MTU)
}

func tapReady() state.Query { return state.Query{Space: state.Host, Tap: true} }

// Observe returns the queries for the interface's name, which must be free, the tap driver and the bridge.
func (Tap) Observe(in Input) ([]state.Query, error) {
	c, err := decoded(in, readTap)
	if err != nil {
		return nil, err
	}
	queries := []state.Query{freeName(in.Request), tapReady()}
	if c.Bridge != "" {
		queries = append(queries, state.Query{Space: state.Pod, Link: c.Bridge})
	}
	return queries, checkArgs(in.Request)
}

// ReadyQueries returns the query for the tap driver.
func (Tap) ReadyQueries(Input) []state.Query { return []state.Query{tapReady()} }

// Ready returns an error if tap devices cannot be created.
func (Tap) Ready(in Input) error {
	have := in.Answers[tapReady()]
	if have.Found {
		return nil
	}
	return model.Errorf(model.CodeInvalidConf, "modprobe tun, and give weft access to /dev/net/tun",
		"plugin tap: no tap device can be created: %s", have.Value)
}

// checkBridge rejects a bridge that does not exist in the container.
func (c tapConf) checkBridge(in Input) error {
	if c.Bridge == "" {
		return nil
	}
	planned := slices.ContainsFunc(in.Chain.Fragment.Pod.Links, func(l state.Link) bool {
		return l.Name == c.Bridge && l.Kind == state.Bridge
	})
	have := in.Answers[state.Query{Space: state.Pod, Link: c.Bridge}]
	switch {
	case planned, have.Link.Kind == state.Bridge:
		return nil
	case !have.Found:
		return model.Errorf(model.CodeInvalidConf, "a plugin of an earlier network must create it",
			"plugin tap: bridge %q does not exist in the container", c.Bridge)
	}
	return model.Errorf(model.CodeInvalidConf, "", "plugin tap: bridge %q is not a bridge but %s", c.Bridge,
		kindName(have.Link))
}

// Plan creates the device.
func (t Tap) Plan(in Input) (Step, error) {
	c, err := decoded(in, readTap)
	if err != nil {
		return Step{}, err
	}
	if err := checkFreeName(in); err != nil {
		return Step{}, err
	}
	if err := t.Ready(in); err != nil {
		return Step{}, err
	}
	if err := c.checkBridge(in); err != nil {
		return Step{}, err
	}
	mac, err := c.mac(in.Conf, in.Request)
	if err != nil {
		return Step{}, err
	}
	if mac.IsZero() {
		mac = podMAC(in.Request)
	}
	a, dns, err := in.optionalAddresses(c.ipam)
	if err != nil {
		return Step{}, err
	}
	i := standaloneLink{link: state.Link{
		Kind: state.Tap, MAC: mac, MTU: c.MTU, Master: c.Bridge,
		Tun: &state.TunAttrs{MultiQueue: c.MultiQueue, Owner: c.Owner, Group: c.Group, SELinux: c.SELinuxContext},
	}}
	step, err := i.step(in, a, dns)
	if err == nil && c.ipam {
		notify(&step.Fragment, in.Request.IfName, false)
	}
	return step, err
}
