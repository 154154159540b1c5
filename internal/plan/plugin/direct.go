// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/vm"
	"github.com/weft-net/weft/internal/state"
)

// Direct creates a tap in a container and joins it to the interface of one of its networks: a hypervisor that opens the
// tap assigns that interface's place to its guest. KubeVirt calls it after the network's own plugin for a binding
// plugin of type tap, and names the network.
type Direct struct{}

// DirectType is Direct's type.
const DirectType = "weft-direct"

type directConf struct {
	// Link is the container's interface, if no KubeVirt argument names it.
	Link       string           `json:"link"`
	Owner      *uint32          `json:"owner"`
	MultiQueue bool             `json:"multiQueue"`
	SELinux    string           `json:"selinuxContext"`
	Join       state.JoinMethod `json:"join"`
	// Subnet is the prefix length in the DHCP lease of a guest with a single address.
	Subnet int       `json:"subnet"`
	DNS    model.DNS `json:"dns"`
	Args   struct {
		CNI struct {
			LogicNetworkName string `json:"logicNetworkName"`
		} `json:"cni"`
	} `json:"args"`
}

// Type returns "weft-direct".
func (Direct) Type() string { return DirectType }

// Capabilities returns none: the plugin implements no optional interface.
func (Direct) Capabilities() Capabilities { return Capabilities{} }

// Keys returns the configuration keys.
func (Direct) Keys() []string {
	return append(commonKeys(), "link", "owner", "multiQueue", "selinuxContext", "join", "subnet", "dns.nameservers[]",
		"dns.domain", "dns.search[]", "dns.options[]")
}

// IPAM returns nil: the addresses are those of the interface.
func (Direct) IPAM(model.PluginConf) ([]byte, error) { return nil, nil }

// Decode parses and validates the configuration: it rejects settings that no tap can have.
func (Direct) Decode(conf model.PluginConf) (any, error) { return readDirect(conf) }

func readDirect(conf model.PluginConf) (directConf, error) {
	var c directConf
	if err := decode(conf, &c); err != nil {
		return c, err
	}
	if c.Link != "" {
		if err := checkLinkName(conf, "link", c.Link); err != nil {
			return c, err
		}
	}
	if c.Join != "" && !slices.Contains(state.JoinMethods(), c.Join) {
		return c, model.Errorf(model.CodeInvalidConf, "remove it: the best method is chosen",
			"plugin %s: join %q is not one of %v", DirectType, c.Join, state.JoinMethods())
	}
	const least, most = 8, 30
	if c.Subnet != 0 && (c.Subnet < least || c.Subnet > most) {
		return c, model.Errorf(model.CodeInvalidConf, "leave it out for a single address",
			"plugin %s: subnet %d is not between %d and %d", DirectType, c.Subnet, least, most)
	}
	return c, nil
}

// DirectLinks returns the names of the interfaces of which a configuration of Direct means one, the more likely one first;
// none if the configuration is invalid, which an ADD reports.
func DirectLinks(conf model.PluginConf) []string {
	c, err := readDirect(conf)
	if err != nil {
		return nil
	}
	var names []string
	for _, one := range c.candidates(Input{}) {
		names = append(names, one.PodLink(one.VM.Interfaces[0]))
	}
	return names
}

// candidates returns the interfaces that may be meant, the more likely one first. The interface of a secondary network
// has a name that is derived from the network's.
func (c directConf) candidates(in Input) []vm.Input {
	network := model.VMNetwork{Name: c.Args.CNI.LogicNetworkName}
	nic := model.VMInterface{Name: cmp.Or(network.Name, in.Request.IfName), Binding: model.VMDirect, Network: network}
	one := func(nic model.VMInterface) vm.Input {
		out := vm.Input{
			VM: model.VM{
				Name: in.Request.ContainerID, Hostname: hostname(in.Request), Interfaces: []model.VMInterface{nic},
				Owner: *cmp.Or(c.Owner, new(uint32)),
			},
			Join: c.Join, Answers: in.Answers, DNS: c.DNS, SubnetBits: c.Subnet, ErrorPrefix: "plugin " + DirectType,
		}
		if c.MultiQueue {
			const multiple = 2
			out.VM.Queues, out.VM.Interfaces[0].Model = multiple, "virtio"
		}
		return out
	}
	first := nic
	first.Network.Primary = true
	if c.Link != "" {
		first.PodLink = c.Link
		first.Network.Primary = !strings.HasPrefix(c.Link, "pod")
		return []vm.Input{one(first)}
	}
	if network.Name == "" {
		return []vm.Input{one(first)}
	}
	return []vm.Input{one(nic), one(first)}
}

// hostname returns the name of the pod's VM.
func hostname(r model.Request) string {
	pod, _ := r.Arg("K8S_POD_NAME")
	name, ok := strings.CutPrefix(pod, "virt-launcher-")
	if !ok {
		return pod
	}
	if i := strings.LastIndexByte(name, '-'); i > 0 {
		name = name[:i]
	}
	return name
}

// Observe returns the queries for all candidates.
func (Direct) Observe(in Input) ([]state.Query, error) {
	c, err := decoded(in, readDirect)
	if err != nil {
		return nil, err
	}
	queries := []state.Query{tapReady()}
	for _, one := range c.candidates(in) {
		queries = append(queries, vm.Observe(one)...)
	}
	return queries, checkArgs(in.Request)
}

// Plan creates the tap and joins it.
func (Direct) Plan(in Input) (Step, error) {
	c, err := decoded(in, readDirect)
	if err != nil {
		return Step{}, err
	}
	if have := in.Answers[tapReady()]; !have.Found {
		return Step{}, model.Errorf(model.CodeInvalidEnv, "modprobe tun, and give weft access to /dev/net/tun",
			"plugin %s: no tap device can be created: %s", DirectType, have.Value)
	}
	all := c.candidates(in)
	chosen := all[len(all)-1]
	if first := all[0]; in.Answers[state.Query{Space: state.Pod, Link: first.PodLink(first.VM.Interfaces[0])}].Found {
		chosen = first
	}
	p, err := vm.New(chosen)
	if err != nil {
		return Step{}, err
	}
	n := p.Networks[0]
	if n.Device.OnNode {
		return Step{}, model.Errorf(model.CodeInvalidConf, "remove this plugin from the list",
			"plugin %s: the guest already has the tap %s on the node", DirectType, n.Device.Target)
	}
	f := n.Fragment
	f.Owner = Owner(in.Request.Key())
	for i := range f.Pod.Links {
		f.Pod.Links[i].Alias = Mark(in.Request.Key())
		f.Pod.Links[i].Tun.SELinux = c.SELinux
	}
	step := Step{Fragment: f}
	if in.Chain.Prev != nil {
		step.Result = *in.Chain.Prev
	}
	step.Result.Interfaces = append(slices.Clone(step.Result.Interfaces), model.Interface{
		Name: n.Device.Target, MAC: f.Pod.Links[0].MAC.String(), Sandbox: in.Request.Netns,
	})
	if n.Guest != nil {
		step.Guests = []model.GuestConfig{*n.Guest}
	}
	return step, nil
}
