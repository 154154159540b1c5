// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// HostDevice lends a network device of the node to a container: it moves into the container's namespace under the
// interface's name, and comes back with everything that it had.
type HostDevice struct{}

// Type is "host-device".
func (HostDevice) Type() string { return "host-device" }

// Capabilities says what it can beside planning.
func (h HostDevice) Capabilities() Capabilities { return Capabilities{Readiness: h, Trace: h} }

// Keys are the options of the reference plugin.
func (HostDevice) Keys() []string { return interfaceKeys("device", "hwaddr", "kernelpath", "pciBusID") }

// IPAM is the ipam section; without one the device only moves.
func (HostDevice) IPAM(conf model.PluginConf) ([]byte, error) { return ipamSection(conf) }

// Decode refuses a configuration that names no device, or several.
func (HostDevice) Decode(conf model.PluginConf) (any, error) { return readHostDevice(conf) }

// Observe asks for the device and whether the interface's name is free.
func (HostDevice) Observe(in Input) ([]state.Query, error) {
	c, err := decoded(in, readHostDevice)
	if err != nil {
		return nil, err
	}
	return []state.Query{freeName(in.Request), c.query()}, checkArgs(in.Request)
}

// ReadyQueries asks for the device alone. A configuration that names none was refused before.
func (HostDevice) ReadyQueries(in Input) []state.Query {
	c, err := decoded(in, readHostDevice)
	if err != nil {
		return nil
	}
	return []state.Query{c.query()}
}

// Ready tells whether the device is on the node and not in a container.
func (HostDevice) Ready(in Input) error {
	c, err := decoded(in, readHostDevice)
	if err != nil {
		return err
	}
	_, err = c.device(in.Answers)
	return err
}

// Plan moves the device. One that a program drives by itself has no link, and is only named in the result.
func (h HostDevice) Plan(in Input) (Step, error) {
	c, err := decoded(in, readHostDevice)
	if err != nil {
		return Step{}, err
	}
	have, err := c.device(in.Answers)
	if err != nil {
		return Step{}, err
	}
	iface := model.Interface{Name: in.Request.IfName, Sandbox: in.Request.Netns, PciID: have.PCI}
	if !userspace(have.Driver) && !have.Link.MAC.IsZero() {
		iface.MAC = have.Link.MAC.String()
	}
	var a addressed
	result := model.Result{Interfaces: []model.Interface{iface}}
	if c.ipam {
		if a, err = in.addresses(); err != nil {
			return Step{}, err
		}
		zero := 0
		for _, ip := range a.ips {
			ip.Interface = &zero
			result.IPs = append(result.IPs, ip)
		}
		result.Routes, result.DNS = a.routes, in.IPAM.DNS
	}
	if err := in.overrideDNS(&result); err != nil {
		return Step{}, err
	}
	owner := Owner(in.Request.Key())
	step := Step{Fragment: state.Fragment{Owner: owner}, Restore: state.Fragment{Owner: owner}, Result: result}
	if userspace(have.Driver) {
		return step, nil
	}
	if err := checkFreeName(in); err != nil {
		return Step{}, err
	}
	step.Fragment.Pod = lent(in.Request, have, a)
	step.Fragment.Effects = arrived(in.Request, have, a)
	step.Restore.Host = before(have)
	return step, nil
}

// lent is the device in the container. Its name on the node is its alias there: whoever finds it knows whose it is.
func lent(r model.Request, have state.Answer, a addressed) state.Space {
	name := have.Link.Name
	s := state.Space{Links: []state.Link{{
		Name: r.IfName, From: &state.Origin{Space: state.Host, Name: name, Hardware: have.Link.Kind == ""}, Alias: name,
		Up: state.On(),
	}}}
	for _, ip := range a.ips {
		s.Addrs = append(s.Addrs, state.Addr{Link: r.IfName, Prefix: ip.Address})
	}
	s.Routes = a.podRoutes(r.IfName)
	if a.v6 {
		s.Sysctls = []state.Sysctl{keepAddr(r.IfName)}
	}
	return s
}

// arrived is what is done when the device is up: where IPv6 leads somewhere, wait until nobody else on the wire has the
// container's addresses, as the reference plugin does; and tell all where its addresses are.
func arrived(r model.Request, have state.Answer, a addressed) []state.Effect {
	var out []state.Effect
	if a.gw6.IsValid() {
		out = append(out, state.Effect{Kind: state.WaitDAD, Space: state.Pod, Link: r.IfName})
	}
	if have.Link.MAC.IsZero() || !a.known() {
		return out
	}
	var addrs []netip.Addr
	for _, ip := range a.ips {
		addrs = append(addrs, ip.Address.Addr())
	}
	return append(out, state.Effect{Kind: state.Announce, Space: state.Pod, Link: r.IfName, Addrs: addrs})
}

// before is all of the device that moving and using it loses.
func before(have state.Answer) state.Space {
	l := have.Link
	l.Kind, l.Peer, l.Bridge, l.Shared = "", nil, nil, false
	if l.Master == "" {
		l.Port = nil
	}
	addrs := slices.Clone(have.Addrs)
	for i := range addrs {
		addrs[i].NoDAD = true // it was nobody else's when it left
	}
	return state.Space{Links: []state.Link{l}, Addrs: addrs, Routes: have.Routes, Sysctls: have.Sysctls}
}

// userspace tells whether a program drives the hardware itself (DPDK), so that there is no link.
func userspace(driver string) bool {
	return slices.Contains([]string{"vfio-pci", "uio_pci_generic", "igb_uio"}, driver)
}

// Trace asks for the container's link, and for the device, which may have come back by itself.
func (HostDevice) Trace(in Input) []state.Query {
	queries := []state.Query{{Space: state.Pod, Link: in.Request.IfName}}
	if c, err := decoded(in, readHostDevice); err == nil {
		queries = append(queries, c.query())
	}
	return queries
}

// Traces is the device, where it bears the mark of having been moved: in the container, or back on the node under a
// name that is not its own, because the container's namespace died.
func (HostDevice) Traces(in Input) Step {
	name, back := "", state.Link{}
	if c, err := decoded(in, readHostDevice); err == nil {
		name, back = c.Device, in.Answers[c.query()].Link
	}
	if back.Alias != "" && back.Alias != back.Name &&
		(back.Name == in.Request.IfName || strings.HasPrefix(back.Name, "dev")) {
		name = back.Alias
	}
	if lent := in.Answers[state.Query{Space: state.Pod, Link: in.Request.IfName}].Link; lent.Alias != "" {
		name = lent.Alias
	}
	if checkLinkName(in.Conf, "device", name) != nil { // also weft's own marks are no names
		return Step{}
	}
	return Step{Fragment: state.Fragment{Owner: Owner(in.Request.Key()), Pod: state.Space{Links: []state.Link{{
		Name: in.Request.IfName, From: &state.Origin{Space: state.Host, Name: name}, Alias: name,
	}}}}}
}
