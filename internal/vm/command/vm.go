// SPDX-License-Identifier: Apache-2.0

// Package command has the verbs of weft vm for one VM's network: plan, xml, phase1, phase2, and the live migration's
// moves and here.
package command

import (
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/cli/printer"
	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/kernel/nft/lang"
	"github.com/weft-net/weft/internal/model"
	plan "github.com/weft-net/weft/internal/plan/vm"
	"github.com/weft-net/weft/internal/state"
	"github.com/weft-net/weft/internal/vm/domain"
	"github.com/weft-net/weft/internal/vm/manifest"
)

// NewPlan returns the command weft vm plan.
func NewPlan(env ui.Env) *cobra.Command {
	in := NewInput(env)
	var output *printer.Format
	cmd := &cobra.Command{
		Use:   "plan FILE",
		Short: "Show the network plan for the pod of a VirtualMachineInstance or VirtualMachine",
		Long: `Shows, for each network of the VM in FILE ("-" is stdin), the links, addresses and rules that would be created in
its pod, what undo would restore, the hypervisor's device, and the DHCP and RA configuration of the guest. It needs no
root, no agent and no pod: flags describe the pod.

Keys of -o json: pod {fragment, restore}; networks [{interface, podLink, fragment, restore, device, guest}]. A
fragment's pod holds links, addrs, routes, sysctls and tables.`,
		Example: "  weft vm plan examples/vm/masquerade.yaml\n" +
			"  weft vm plan --nic default,address=10.1.2.3/32,gateway=169.254.1.1 -o json examples/vm/bridge.yaml",
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			p, err := in.plan(args[0])
			if err != nil {
				return err
			}
			if output.Document() {
				return output.Print(env.Stdout, p)
			}
			return printPlan(env.Stdout, p)
		},
	}
	in.flags(cmd)
	output = printer.Flag(cmd.Flags(), printer.Text, printer.JSON)
	return cmd
}

func printPlan(w io.Writer, p plan.Plan) error {
	text, err := p.Text(lang.Text)
	if err != nil {
		return err
	}
	_, err = io.WriteString(w, text)
	return err
}

// NewXML returns the command weft vm xml.
func NewXML(env ui.Env) *cobra.Command {
	in := NewInput(env)
	cmd := &cobra.Command{
		Use:   "xml FILE",
		Short: "Print the network devices of a VM as libvirt XML",
		Long: `Prints the devices element of a libvirt domain with the network devices of the VM in FILE ("-" is stdin), as
weft vm plan computes them. It needs no root, no agent, no pod and no libvirt.`,
		Example: "  weft vm xml examples/vm/direct.yaml\n" +
			"  weft vm xml --default-binding masquerade examples/vm/bridge.yaml",
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			p, err := in.plan(args[0])
			if err != nil {
				return err
			}
			var devices []model.VMDevice
			for _, n := range p.Networks {
				devices = append(devices, n.Device)
			}
			text, err := domain.XML(devices)
			if err != nil {
				return err
			}
			_, err = io.WriteString(env.Stdout, text)
			return err
		},
	}
	in.flags(cmd)
	return cmd
}

// Input has the flags for a VM and its pod.
type Input struct {
	Env ui.Env
	// Bindings maps the cluster's binding plugins to their domainAttachmentType.
	Bindings map[string]string

	name, usual   string
	nics          []string
	devices       map[string]string
	ordinal, soft bool
	trust         bool
	standIn       string
	join          string
	subnet        int
	dns           model.DNS
}

// flags adds all flags of a command that only reads a manifest.
func (v *Input) flags(cmd *cobra.Command) {
	v.VMFlags(cmd)
	f := cmd.Flags()
	f.StringArrayVar(
		&v.nics, "nic", nil,
		"`NETWORK[,KEY=VALUE…]`: the pod's link of a network; mtu, mac, address and gateway, the last two once per family; tap, if a plugin has created one",
	)
	f.BoolVar(&v.ordinal, "ordinal-names", false, "the pod's secondary links are net1, net2 …")
	f.StringVar(&v.standIn, "stand-in", string(state.Dummy),
		"`KIND` of the link that keeps the name of a pod's link that the guest uses: dummy or bridge")
}

// NewInput returns an Input without flags.
func NewInput(env ui.Env) Input { return Input{Env: env} }

// Options returns the options for the manifest.
func (v *Input) Options() manifest.Options {
	return manifest.Options{Name: v.name, Bindings: v.Bindings, Default: model.VMBinding(v.usual)}
}

// VMFlags adds the flags for settings that are neither in the manifest nor in the pod.
func (v *Input) VMFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&v.name, "name", "", "`NAME` of the VM, if the file has several")
	f.StringVar(&v.usual, "default-binding", string(model.VMBridge),
		"the cluster's defaultNetworkInterface, a `BINDING`: bridge or masquerade")
	f.StringToStringVar(&v.Bindings, "binding", nil,
		"`PLUGIN=TYPE` of the cluster's binding plugins: tap, managedTap or direct")
	f.StringToStringVar(&v.devices, "device", nil, "`NETWORK=ADDRESS`: the PCI address of the device of an sriov network")
	f.BoolVar(&v.soft, "software-checksums", false, "the kernel computes checksums, as in KubeVirt until 1.7")
	f.BoolVar(&v.trust, "trust-guest", false, "no source guard in the pod: the guest may send from any address that its network allows")
	f.StringVar(
		&v.join, "join", "",
		"`METHOD` that joins the tap of the direct binding: redirect-peer, nft-fwd, redirect or mirred (default: the best that the kernel supports)",
	)
	f.IntVar(&v.subnet, "direct-subnet", 0,
		"prefix `LENGTH` in bits, 8 to 30, of the subnet for a guest with a single address and the direct binding")
	f.StringSliceVar(&v.dns.Nameservers, "nameserver", nil, "`ADDRESS` of a name server in the pod's resolv.conf")
	f.StringSliceVar(&v.dns.Search, "search", nil, "search `DOMAIN` in the pod's resolv.conf")
}

// PlanInput returns the input of the plan, without the state of the pod.
func (v *Input) PlanInput(file string) (plan.Input, error) {
	if v.usual != string(model.VMBridge) && v.usual != string(model.VMMasquerade) {
		return plan.Input{}, ui.UsageError(
			model.NotOneOf("--default-binding", v.usual, string(model.VMBridge), string(model.VMMasquerade)))
	}
	data, err := v.Read(file)
	if err != nil {
		return plan.Input{}, err
	}
	if err := v.checkDirect(); err != nil {
		return plan.Input{}, err
	}
	vm, err := manifest.Read(data, v.Options())
	return plan.Input{
		VM: vm, Join: state.JoinMethod(v.join), SubnetBits: v.subnet, SoftChecksums: v.soft, TrustGuest: v.trust,
		Devices: v.devices, DNS: v.dns,
	}, err
}

func (v *Input) plan(file string) (plan.Plan, error) {
	if v.standIn != string(state.Dummy) && v.standIn != string(state.Bridge) {
		return plan.Plan{}, ui.UsageError(
			model.NotOneOf("--stand-in", v.standIn, string(state.Dummy), string(state.Bridge)))
	}
	in, err := v.PlanInput(file)
	if err != nil {
		return plan.Plan{}, err
	}
	in.OrdinalNames, in.StandIn = v.ordinal, state.Kind(v.standIn)
	if in.Answers, err = answers(in, v.nics); err != nil {
		return plan.Plan{}, err
	}
	return plan.New(in)
}

// Read reads a file; - is standard input.
func (v *Input) Read(file string) ([]byte, error) {
	if file == "-" {
		return io.ReadAll(v.Env.Stdin)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, ui.FileError("for example examples/vm/masquerade.yaml, or - for standard input", "manifest", file, err)
	}
	return b, nil
}
