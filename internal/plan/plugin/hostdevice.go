// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// HostDevice moves a network device of the node into a container's namespace under the interface's name, and back with
// all its settings.
type HostDevice struct{}

// Type returns "host-device".
func (HostDevice) Type() string { return "host-device" }

// Capabilities returns the optional interfaces that the plugin implements.
func (h HostDevice) Capabilities() Capabilities { return Capabilities{Readiness: h, Trace: h} }

// Keys returns the configuration keys, those of the reference plugin.
func (HostDevice) Keys() []string {
	return interfaceKeys("device", "hwaddr", "kernelpath", "pciBusID", dadTimeout)
}

// IPAM returns the ipam section. Without one the device gets no addresses.
func (HostDevice) IPAM(conf model.PluginConf) ([]byte, error) { return ipamSection(conf) }

// Decode parses and validates the configuration, which must name one device.
func (HostDevice) Decode(conf model.PluginConf) (any, error) { return readHostDevice(conf) }

// Observe returns the queries for the device and the interface's name, which must be free.
func (HostDevice) Observe(in Input) ([]state.Query, error) {
	c, err := decoded(in, readHostDevice)
	if err != nil {
		return nil, err
	}
	return []state.Query{freeName(in.Request), c.query()}, checkArgs(in.Request)
}

// ReadyQueries returns the query for the device. A configuration without a device was rejected before.
func (HostDevice) ReadyQueries(in Input) []state.Query {
	c, err := decoded(in, readHostDevice)
	if err != nil {
		return nil
	}
	return []state.Query{c.query()}
}

// Ready returns an error if the device is not on the node, or in a container.
func (HostDevice) Ready(in Input) error {
	c, err := decoded(in, readHostDevice)
	if err != nil {
		return err
	}
	_, err = c.device(in.Answers)
	return err
}

// Plan moves the device. A device with a userspace driver has no network interface and is only listed in the result.
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
	step.Fragment.Pod = movedDevice(in.Request, have, a)
	step.Fragment.Effects = moveEffects(in.Request, have, a)
	c.probe(&step.Fragment, in.Request.IfName)
	step.Restore.Host = preImage(have)
	return step, nil
}

// movedDevice returns the device in the container. Its alias there is its name on the node, so that it can be
// identified.
func movedDevice(r model.Request, have state.Answer, a addressed) state.Space {
	name := have.Link.Name
	s := state.Space{Links: []state.Link{{
		Name: r.IfName, MovedFrom: &state.Origin{Space: state.Host, Name: name, Hardware: have.Link.Kind == ""}, Alias: name,
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

// moveEffects returns the effects after the device is set up: duplicate address detection if IPv6 has a gateway, as
// with the reference plugin, and the announcement of the addresses.
func moveEffects(r model.Request, have state.Answer, a addressed) []state.Effect {
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

// preImage returns all settings of the device that are lost by moving and using it.
func preImage(have state.Answer) state.Space {
	l := have.Link
	l.Kind, l.Peer, l.Bridge, l.Shared = "", nil, nil, false
	if l.Master == "" {
		l.Port = nil
	}
	addrs := slices.Clone(have.Addrs)
	for i := range addrs {
		addrs[i].NoDAD = true // it passed duplicate address detection before
	}
	return state.Space{Links: []state.Link{l}, Addrs: addrs, Routes: have.Routes, Sysctls: have.Sysctls}
}

// userspace reports whether the driver is a userspace driver (DPDK), without a network interface in the kernel.
func userspace(driver string) bool {
	return slices.Contains([]string{"vfio-pci", "uio_pci_generic", "igb_uio"}, driver)
}

// Trace returns the queries for the container's interface and for the device, which may have returned to the node by
// itself.
func (HostDevice) Trace(in Input) []state.Query {
	queries := []state.Query{{Space: state.Pod, Link: in.Request.IfName}}
	if c, err := decoded(in, readHostDevice); err == nil {
		queries = append(queries, c.query())
	}
	return queries
}

// Traces returns the device if its alias shows that it was moved: in the container, or back on the node under a name
// that is not its own, because the container's namespace was deleted.
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
	if checkLinkName(in.Conf, "device", name) != nil { // weft's own marks are not valid names either
		return Step{}
	}
	return Step{Fragment: state.Fragment{Owner: Owner(in.Request.Key()), Pod: state.Space{Links: []state.Link{{
		Name: in.Request.IfName, MovedFrom: &state.Origin{Space: state.Host, Name: name}, Alias: name,
	}}}}}
}
