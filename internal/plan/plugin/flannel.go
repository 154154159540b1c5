// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"encoding/json"
	"net/netip"
	"path"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// FlannelType is the plugin that stands for another one, which it configures by what the node's flanneld says.
const FlannelType = "flannel"

const (
	flannelSubnetFile = "/run/flannel/subnet.env"
	flannelDataDir    = "/var/lib/cni/flannel"
)

// Flannel stands for another plugin. Whoever plans a list puts that plugin in its place first (Delegate): it plans
// nothing itself.
type Flannel struct{}

// FlannelNode is what the node's flanneld says.
type FlannelNode struct {
	Networks []netip.Prefix // the cluster's
	Subnets  []netip.Prefix // the node's
	MTU      int
	IPMasq   bool // flanneld masquerades
}

type flannelConf struct {
	Name          string                     `json:"name"`
	CNIVersion    string                     `json:"cniVersion"`
	SubnetFile    string                     `json:"subnetFile"`
	DataDir       string                     `json:"dataDir"`
	Delegate      map[string]json.RawMessage `json:"delegate"`
	IPAM          map[string]json.RawMessage `json:"ipam"`
	RuntimeConfig map[string]json.RawMessage `json:"runtimeConfig"`
}

func readFlannel(conf model.PluginConf) (flannelConf, error) {
	var c flannelConf
	if err := decode(conf, &c); err != nil {
		return c, err
	}
	c.SubnetFile = cmp.Or(c.SubnetFile, flannelSubnetFile)
	c.DataDir = cmp.Or(c.DataDir, flannelDataDir)
	if _, there := c.Delegate["name"]; there {
		return c, model.Faultf(model.CodeInvalidConf, "it is the network's",
			"plugin flannel: delegate.name %s must not be set", c.Delegate["name"])
	}
	if _, there := c.Delegate["ipam"]; there {
		return c, model.Faultf(model.CodeInvalidConf, "put ipam beside delegate, not into it",
			"plugin flannel: delegate.ipam must not be set")
	}
	if _, err := c.routes(conf); err != nil {
		return c, err
	}
	if _, err := c.word(conf, "ipam.type", c.IPAM["type"], ""); err != nil {
		return c, err
	}
	typ, err := c.delegateType(conf)
	if err == nil && typ == FlannelType {
		err = model.Faultf(model.CodeInvalidConf, `leave it out to have "bridge"`,
			"plugin flannel: delegate.type %q stands for itself", typ)
	}
	return c, err
}

func (c flannelConf) word(conf model.PluginConf, key string, raw json.RawMessage, absent string) (string, error) {
	if raw == nil {
		return absent, nil
	}
	var s string
	err := decodeAt(conf, key, raw, &s)
	if err == nil && s == "" {
		err = model.Faultf(model.CodeInvalidConf, "leave it out, or name a plugin",
			"plugin flannel: %s %s names no plugin", key, raw)
	}
	return s, err
}

func (c flannelConf) delegateType(conf model.PluginConf) (string, error) {
	return c.word(conf, "delegate.type", c.Delegate["type"], "bridge")
}

// routes are those of the ipam section, as they stand there.
func (c flannelConf) routes(conf model.PluginConf) ([]json.RawMessage, error) {
	var routes []json.RawMessage
	if raw := c.IPAM["routes"]; raw != nil {
		return routes, decodeAt(conf, "ipam.routes", raw, &routes)
	}
	return routes, nil
}

// Type is "flannel".
func (Flannel) Type() string { return FlannelType }

// Capabilities are none beside planning.
func (Flannel) Capabilities() Capabilities { return Capabilities{} }

// Keys are the plugin's own; those of the delegate are the delegate's.
func (Flannel) Keys() []string {
	return append(commonKeys(), "subnetFile", "dataDir", "delegate.*", "ipam.*")
}

// IPAM is nil: it is the delegate that asks.
func (Flannel) IPAM(model.PluginConf) ([]byte, error) { return nil, nil }

// Decode refuses also what the delegate would, as far as it is built in and that is known without flanneld. It keeps
// nothing: what is planned is the delegate.
func (f Flannel) Decode(conf model.PluginConf) (any, error) {
	d, err := f.Delegate(conf, FlannelNode{})
	if err != nil {
		return nil, err
	}
	if p := Builtin()[d.Type]; p != nil {
		return nil, Validate(p, d)
	}
	return nil, nil
}

// Observe is never asked where the delegate has taken the plugin's place.
func (Flannel) Observe(Input) ([]state.Query, error) { return nil, errNotUnfolded() }

// Plan is never asked where the delegate has taken the plugin's place.
func (Flannel) Plan(Input) (Step, error) { return Step{}, errNotUnfolded() }

func errNotUnfolded() error {
	return model.Faultf(model.CodeInternal, "this is a bug: report it",
		"plugin flannel: it has no plan without its delegate")
}

// SubnetFile is where the node's flanneld says what Delegate wants to know.
func (Flannel) SubnetFile(conf model.PluginConf) (string, error) {
	c, err := readFlannel(conf)
	return c.SubnetFile, err
}

// DataDir is where the delegates of this node's containers are remembered.
func (Flannel) DataDir(conf model.PluginConf) (string, error) {
	c, err := readFlannel(conf)
	return c.DataDir, err
}

// Saved are the files, in the order in which they are tried, that a container's delegate may be remembered in. The
// first is the one that the reference plugin has. It forgets one of two such networks of a container; weft has the
// second for it.
func (f Flannel) Saved(conf model.PluginConf, r model.Request) ([]string, error) {
	dir, err := f.DataDir(conf)
	first := path.Join(dir, r.ContainerID)
	return []string{first, first + "." + r.IfName}, err
}

// Delegate is the plugin that conf stands for, on a node whose flanneld says what it says. It has the keys and values
// that the reference plugin gives it.
func (Flannel) Delegate(conf model.PluginConf, node FlannelNode) (model.PluginConf, error) {
	c, err := readFlannel(conf)
	if err != nil {
		return conf, err
	}
	typ, err := c.delegateType(conf)
	if err != nil {
		return conf, err
	}
	ipam, err := c.ipam(conf, node)
	if err != nil {
		return conf, err
	}
	d := map[string]any{"type": typ, "ipMasq": !node.IPMasq, "mtu": node.MTU}
	if typ == "bridge" {
		d["isGateway"] = true
	}
	for key, value := range c.Delegate {
		d[key] = value
	}
	d["name"], d["ipam"] = c.Name, ipam
	if c.CNIVersion != "" {
		d["cniVersion"] = c.CNIVersion
	}
	if c.RuntimeConfig != nil {
		d["runtimeConfig"] = c.RuntimeConfig
	}
	raw, err := json.Marshal(d)
	if err != nil {
		return conf, model.Faultf(model.CodeInternal, "", "plugin flannel: delegate: %w", err)
	}
	return model.PluginConf{Type: typ, Raw: raw}, nil
}

// ipam is the delegate's section: host-local, unless another is named, with the node's subnets and routes to the
// cluster.
func (c flannelConf) ipam(conf model.PluginConf, node FlannelNode) (map[string]any, error) {
	out := map[string]any{"type": "host-local"}
	for key, value := range c.IPAM {
		out[key] = value
	}
	type subnet struct {
		Subnet netip.Prefix `json:"subnet"`
	}
	var ranges [][]subnet
	for _, s := range node.Subnets {
		ranges = append(ranges, []subnet{{s.Masked()}})
	}
	given, err := c.routes(conf)
	if err != nil {
		return nil, err
	}
	type route struct {
		Dst netip.Prefix `json:"dst"`
	}
	routes := make([]any, 0, len(given)+len(node.Networks))
	for _, r := range given {
		routes = append(routes, r)
	}
	for _, n := range node.Networks {
		routes = append(routes, route{n})
	}
	out["ranges"], out["routes"] = ranges, routes
	return out, nil
}
