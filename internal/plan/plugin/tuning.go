// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// Tuning changes the container's interface and the sysctls of its namespace. If a plugin of the same list creates the
// interface, it is created with the changed settings; the previous settings of an existing one are recorded and
// restored.
type Tuning struct{}

// AllowList is the file that limits the sysctls, with one regular expression per line. Without the file all are
// allowed.
const AllowList = "/etc/cni/tuning/allowlist.conf"

// Type returns "tuning".
func (Tuning) Type() string { return "tuning" }

// Capabilities returns the optional interfaces that the plugin implements.
func (t Tuning) Capabilities() Capabilities { return Capabilities{Readiness: t, Check: t, Trace: t} }

// Keys returns the configuration keys, those of the reference plugin.
func (Tuning) Keys() []string {
	return append(commonKeys(), "sysctl.*", "mac", "mtu", "promisc", "allmulti", "txQLen", "dataDir")
}

// IPAM returns nil: the plugin needs no addresses.
func (Tuning) IPAM(model.PluginConf) ([]byte, error) { return nil, nil }

// Decode parses and validates the configuration. The request's own settings are validated for each request.
func (Tuning) Decode(conf model.PluginConf) (any, error) {
	c, err := decodeTuning(conf)
	if err == nil {
		_, err = c.resolve(conf, model.Request{})
	}
	return c, err
}

// Observe returns the queries for what will be restored: the interface and the sysctls, unless the list creates them.
func (Tuning) Observe(in Input) ([]state.Query, error) {
	c, err := readTuning(in)
	if err != nil {
		return nil, err
	}
	var queries []state.Query
	if len(c.sysctls) > 0 {
		queries = append(queries, allowList())
	}
	if c.changesLink() && !in.makes(in.Request.IfName) {
		queries = append(queries, state.Query{Space: state.Pod, Link: in.Request.IfName})
	}
	for _, s := range c.sysctls {
		if !in.makesSysctl(s.path) {
			queries = append(queries, state.Query{Space: state.Pod, Sysctl: s.path})
		}
	}
	return queries, checkArgs(in.Request)
}

func allowList() state.Query { return state.Query{Space: state.Host, File: AllowList} }

// makes reports whether the list creates the interface, which is then deleted with the attachment.
func (in Input) makes(name string) bool {
	return slices.ContainsFunc(in.Chain.Fragment.Pod.Links, func(l state.Link) bool {
		return l.Name == name && (l.Kind != "" || l.MovedFrom != nil)
	})
}

// makesSysctl reports whether a sysctl belongs to an interface that the list creates.
func (in Input) makesSysctl(path string) bool {
	return slices.ContainsFunc(in.Chain.Fragment.Pod.Links, func(l state.Link) bool {
		return (l.Kind != "" || l.MovedFrom != nil) && ofLink(path, l.Name)
	})
}

// Plan computes the changes and their pre-image.
func (t Tuning) Plan(in Input) (Step, error) {
	c, err := readTuning(in)
	if err != nil {
		return Step{}, err
	}
	prev, err := in.prev()
	if err != nil {
		return Step{}, err
	}
	if err := c.allowed(in); err != nil {
		return Step{}, err
	}
	owner := Owner(in.Request.Key())
	step := Step{Fragment: state.Fragment{Owner: owner}, Restore: state.Fragment{Owner: owner}, Result: prev}
	for _, s := range c.sysctls {
		step.Fragment.Pod.Sysctls = append(step.Fragment.Pod.Sysctls, state.Sysctl{Name: s.path, Value: s.value})
		before := in.Answers[state.Query{Space: state.Pod, Sysctl: s.path}]
		if before.Found && !in.makesSysctl(s.path) {
			step.Restore.Pod.Sysctls = append(step.Restore.Pod.Sysctls, state.Sysctl{
				Name: s.path, Value: before.Value, IfPresent: true,
			})
		}
	}
	if !c.changesLink() {
		return step, nil
	}
	if in.hasHostShim() && !c.mac.IsZero() {
		return Step{}, model.Errorf(model.CodeInvalidConf, "set mac in the configuration of macvlan",
			"plugin tuning: mac %s: a host shim has the MAC that the interface is created with", c.mac)
	}
	step.Fragment.Pod.Links, step.Fragment.Host.Tables = []state.Link{
		c.link(in.Request.IfName),
	}, in.guardElementsFor(
		c.mac,
	)
	if !in.makes(in.Request.IfName) {
		before := in.Answers[state.Query{Space: state.Pod, Link: in.Request.IfName}]
		if !before.Found {
			return Step{}, model.Errorf(model.CodeInvalidConf, "put the plugin after the one that creates the interface",
				"plugin tuning: interface %q does not exist in %s", in.Request.IfName, in.Request.Netns)
		}
		was := c.before(before.Link)
		step.Restore.Pod.Links = []state.Link{was}
		step.Backup = c.backup(in.Request, was)
	}
	step.Result = c.result(in.Request, prev)
	if up := in.Answers[state.Query{Space: state.Pod, Link: in.Request.IfName}].Link.Up; in.makes(in.Request.IfName) ||
		up != nil && *up {
		step.Fragment.Effects = c.announce(in.Request, prev)
	}
	return step, nil
}

// ReadyQueries returns the query for the allow list.
func (Tuning) ReadyQueries(Input) []state.Query { return []state.Query{allowList()} }

// Ready returns an error if the node does not allow a sysctl.
func (Tuning) Ready(in Input) error {
	c, err := readTuning(in)
	if err != nil {
		return err
	}
	return c.allowed(in)
}

// ExpectQueries returns no queries: the configuration is sufficient.
func (Tuning) ExpectQueries(Input) []state.Query { return nil }

// Expect returns all that the configuration sets.
func (Tuning) Expect(in Input) (state.Fragment, error) {
	f := state.Fragment{Owner: Owner(in.Request.Key())}
	c, err := readTuning(in)
	if err != nil {
		return f, err
	}
	for _, s := range c.sysctls {
		f.Pod.Sysctls = append(f.Pod.Sysctls, state.Sysctl{Name: s.path, Value: s.value})
	}
	if c.changesLink() {
		f.Pod.Links = []state.Link{c.link(in.Request.IfName)}
	}
	return f, nil
}

// link returns the configured settings of the interface.
func (c tuning) link(name string) state.Link {
	l := state.Link{Name: name, MAC: c.mac, MTU: c.MTU, AllMulti: c.AllMulti, TxQLen: c.TxQLen}
	if c.Promisc {
		l.Promisc = state.On()
	}
	return l
}

// before returns the previous values of the settings that change.
func (c tuning) before(have state.Link) state.Link {
	l := state.Link{Name: have.Name}
	if !c.mac.IsZero() {
		l.MAC = have.MAC
	}
	if c.MTU != 0 {
		l.MTU = have.MTU
	}
	if c.Promisc {
		l.Promisc = have.Promisc
	}
	if c.AllMulti != nil {
		l.AllMulti = have.AllMulti
	}
	if c.TxQLen != nil {
		l.TxQLen = have.TxQLen
	}
	return l
}

// result returns the previous result with the interface's new settings.
func (c tuning) result(r model.Request, prev model.Result) model.Result {
	prev.Interfaces = slices.Clone(prev.Interfaces)
	for i := range prev.Interfaces {
		iface := &prev.Interfaces[i]
		if iface.Name != r.IfName || iface.Sandbox == "" {
			continue
		}
		if !c.mac.IsZero() {
			iface.MAC = c.mac.String()
		}
		if c.MTU != 0 {
			iface.MTU = c.MTU
		}
	}
	return prev
}

// announce returns the announcement of the interface's addresses if its MAC address changes.
func (c tuning) announce(r model.Request, prev model.Result) []state.Effect {
	if c.mac.IsZero() {
		return nil
	}
	var addrs []netip.Addr
	for _, ip := range prev.IPs {
		i := ip.Interface
		if i == nil || *i >= 0 && *i < len(prev.Interfaces) && prev.Interfaces[*i].Name == r.IfName {
			addrs = append(addrs, ip.Address.Addr())
		}
	}
	if len(addrs) == 0 {
		return nil
	}
	return []state.Effect{{Kind: state.Announce, Space: state.Pod, Link: r.IfName, Addrs: addrs}}
}
