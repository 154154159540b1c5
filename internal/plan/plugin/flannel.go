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

// FlannelType is the type of the plugin that delegates to another plugin, which it configures from flanneld's subnet
// file.
const FlannelType = "flannel"

const (
	flannelSubnetFile = "/run/flannel/subnet.env"
	// FlannelDataDir is where the plugin keeps its delegates, as the reference plugin does.
	FlannelDataDir = "/var/lib/cni/flannel"
)

// Flannel delegates to another plugin. The caller replaces it by the delegate before planning (Delegate): it plans
// nothing itself.
type Flannel struct{}

// FlannelNode is the content of flanneld's subnet file on the node.
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
	c.DataDir = cmp.Or(c.DataDir, FlannelDataDir)
	if _, there := c.Delegate["name"]; there {
		return c, model.Errorf(model.CodeInvalidConf, "the delegate has the network's name",
			"plugin flannel: delegate.name %s must not be set", c.Delegate["name"])
	}
	if _, there := c.Delegate["ipam"]; there {
		return c, model.Errorf(model.CodeInvalidConf, "move ipam out of delegate",
			"plugin flannel: delegate.ipam must not be set")
	}
	if _, err := c.routes(conf); err != nil {
		return c, err
	}
	if _, err := c.pluginName(conf, "ipam.type", c.IPAM["type"], ""); err != nil {
		return c, err
	}
	typ, err := c.delegateType(conf)
	if err == nil && typ == FlannelType {
		err = model.Errorf(model.CodeInvalidConf, `leave it out to have "bridge"`,
			"plugin flannel: delegate.type %q is the plugin itself", typ)
	}
	return c, err
}

func (c flannelConf) pluginName(conf model.PluginConf, key string, raw json.RawMessage, absent string) (string, error) {
	if raw == nil {
		return absent, nil
	}
	var s string
	err := decodeAt(conf, key, raw, &s)
	if err == nil && s == "" {
		err = model.Errorf(model.CodeInvalidConf, "leave it out, or name a plugin",
			"plugin flannel: %s %s names no plugin", key, raw)
	}
	return s, err
}

func (c flannelConf) delegateType(conf model.PluginConf) (string, error) {
	return c.pluginName(conf, "delegate.type", c.Delegate["type"], "bridge")
}

// routes returns the routes of the ipam section unchanged.
func (c flannelConf) routes(conf model.PluginConf) ([]json.RawMessage, error) {
	var routes []json.RawMessage
	if raw := c.IPAM["routes"]; raw != nil {
		return routes, decodeAt(conf, "ipam.routes", raw, &routes)
	}
	return routes, nil
}

// Type returns "flannel".
func (Flannel) Type() string { return FlannelType }

// Capabilities returns none: the plugin implements no optional interface.
func (Flannel) Capabilities() Capabilities { return Capabilities{} }

// Keys returns the plugin's own configuration keys. Those of delegate are the delegate's.
func (Flannel) Keys() []string {
	return append(commonKeys(), "subnetFile", "dataDir", "delegate.*", "ipam.*")
}

// IPAM returns nil: the delegate requests the addresses.
func (Flannel) IPAM(model.PluginConf) ([]byte, error) { return nil, nil }

// Decode validates the configuration and, if the delegate is built in, the delegate's configuration as far as it does
// not depend on flanneld. It returns no parsed form: the delegate is planned instead.
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

// Observe returns an error: the delegate is planned instead.
func (Flannel) Observe(Input) ([]state.Query, error) { return nil, errNoDelegate() }

// Plan returns an error: the delegate is planned instead.
func (Flannel) Plan(Input) (Step, error) { return Step{}, errNoDelegate() }

func errNoDelegate() error {
	return model.Errorf(model.CodeInternal, "this is a bug: report it",
		"plugin flannel: the delegate is not resolved")
}

// SubnetFile returns the path of flanneld's subnet file, which Delegate needs.
func (Flannel) SubnetFile(conf model.PluginConf) (string, error) {
	c, err := readFlannel(conf)
	return c.SubnetFile, err
}

// DataDir returns the directory in which the delegates of this node's containers are saved.
func (Flannel) DataDir(conf model.PluginConf) (string, error) {
	c, err := readFlannel(conf)
	return c.DataDir, err
}

// Saved returns the files in which the delegate of a container may be saved, in the order in which they are tried. The
// first is the reference plugin's. It overwrites the file if a container has two such networks; weft uses the second
// file then.
func (f Flannel) Saved(conf model.PluginConf, r model.Request) ([]string, error) {
	dir, err := f.DataDir(conf)
	first := path.Join(dir, r.ContainerID)
	return []string{first, first + "." + r.IfName}, err
}

// Delegate returns the configuration of the plugin that conf delegates to. It has the keys and values that the
// reference plugin passes.
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
		return conf, model.Errorf(model.CodeInternal, "", "plugin flannel: delegate: %w", err)
	}
	return model.PluginConf{Type: typ, Raw: raw}, nil
}

// ipam returns the delegate's ipam section: host-local by default, with the node's subnets and routes to the cluster
// networks.
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
	configured, err := c.routes(conf)
	if err != nil {
		return nil, err
	}
	type route struct {
		Dst netip.Prefix `json:"dst"`
	}
	routes := make([]any, 0, len(configured)+len(node.Networks))
	for _, r := range configured {
		routes = append(routes, r)
	}
	for _, n := range node.Networks {
		routes = append(routes, route{n})
	}
	out["ranges"], out["routes"] = ranges, routes
	return out, nil
}
