// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// Tuning changes the container's interface and the settings of its namespace. What another plugin of the same list
// makes is made that way at once; what was there before is remembered and given back.
type Tuning struct{}

// AllowList is the file that limits the settings: a regular expression a line. Without the file all are allowed.
const AllowList = "/etc/cni/tuning/allowlist.conf"

// Type is "tuning".
func (Tuning) Type() string { return "tuning" }

// Capabilities says what it can beside planning.
func (t Tuning) Capabilities() Capabilities { return Capabilities{Readiness: t, Check: t, Trace: t} }

// Keys are the options of the reference plugin.
func (Tuning) Keys() []string {
	return append(commonKeys(), "sysctl.*", "mac", "mtu", "promisc", "allmulti", "txQLen", "dataDir")
}

// IPAM is nothing: it asks for no addresses.
func (Tuning) IPAM(model.PluginConf) ([]byte, error) { return nil, nil }

// Decode refuses what no interface can be. What the request says of it besides is settled for each request.
func (Tuning) Decode(conf model.PluginConf) (any, error) {
	c, err := decodeTuning(conf)
	if err == nil {
		_, err = c.settle(conf, model.Request{})
	}
	return c, err
}

// Observe asks for what will be given back: the interface and the settings, unless the list makes them.
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
		if !in.settles(s.path) {
			queries = append(queries, state.Query{Space: state.Pod, Sysctl: s.path})
		}
	}
	return queries, checkArgs(in.Request)
}

func allowList() state.Query { return state.Query{Space: state.Host, File: AllowList} }

// makes tells whether the list makes the container's link of that name, so that it goes when the attachment does.
func (in Input) makes(name string) bool {
	return slices.ContainsFunc(in.Chain.Fragment.Pod.Links, func(l state.Link) bool {
		return l.Name == name && (l.Kind != "" || l.From != nil)
	})
}

// settles tells whether a setting is one of a link that the list makes.
func (in Input) settles(path string) bool {
	return slices.ContainsFunc(in.Chain.Fragment.Pod.Links, func(l state.Link) bool {
		return (l.Kind != "" || l.From != nil) && aboutLink(path, l.Name)
	})
}

// Plan says what is different from what is there, and what was.
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
		if before.Found && !in.settles(s.path) {
			step.Restore.Pod.Sysctls = append(step.Restore.Pod.Sysctls, state.Sysctl{
				Name: s.path, Value: before.Value, IfPresent: true,
			})
		}
	}
	if !c.changesLink() {
		return step, nil
	}
	step.Fragment.Pod.Links, step.Fragment.Host.Tables = []state.Link{c.link(in.Request.IfName)}, in.guardedToo(c.mac)
	if !in.makes(in.Request.IfName) {
		before := in.Answers[state.Query{Space: state.Pod, Link: in.Request.IfName}]
		if !before.Found {
			return Step{}, model.Faultf(model.CodeInvalidConf, "put the plugin behind the one that makes the interface",
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

// ReadyQueries asks for the list of what may be set.
func (Tuning) ReadyQueries(Input) []state.Query { return []state.Query{allowList()} }

// Ready tells of settings that the node does not allow.
func (Tuning) Ready(in Input) error {
	c, err := readTuning(in)
	if err != nil {
		return err
	}
	return c.allowed(in)
}

// ExpectQueries asks nothing: the configuration says it all.
func (Tuning) ExpectQueries(Input) []state.Query { return nil }

// Expect is what CHECK compares when nothing is recorded: all that the configuration says.
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

// link is what is said of the interface.
func (c tuning) link(name string) state.Link {
	l := state.Link{Name: name, MAC: c.mac, MTU: c.MTU, AllMulti: c.AllMulti, TxQLen: c.TxQLen}
	if c.Promisc {
		l.Promisc = state.On()
	}
	return l
}

// before is what the interface was, as far as it changes.
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

// result tells of the interface what it is now.
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

// announce tells the neighbors that the interface's addresses have another MAC from now on.
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
