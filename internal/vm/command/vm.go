// SPDX-License-Identifier: Apache-2.0

// Package command has the verbs of weft vm that are about one machine's network: what it would be, made in the pod,
// given to the hypervisor, and where a machine that migrates is.
package command

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/kernel/nft/lang"
	"github.com/weft-net/weft/internal/model"
	plan "github.com/weft-net/weft/internal/plan/vm"
	"github.com/weft-net/weft/internal/state"
	"github.com/weft-net/weft/internal/vm/domain"
	"github.com/weft-net/weft/internal/vm/manifest"
)

// NewPlan is weft vm plan.
func NewPlan(env ui.Env) *cobra.Command {
	in := NewInput(env)
	var output string
	cmd := &cobra.Command{
		Use:   "plan FILE",
		Short: "Show what weft would make in the pod of a VirtualMachineInstance or VirtualMachine",
		Long: `Shows, for each network of the machine in FILE ("-" is stdin), the links, addresses and rules that would be
made in its pod, what undo would give back, what the hypervisor is told, and what the guest is told on its wires. It
needs no root, no agent and no pod: what there would be in the pod is told by flags.

Keys of -o json: pod {fragment, restore}; networks [{interface, podLink, fragment, restore, device, guest}]. A
fragment's pod holds links, addrs, routes, sysctls and tables.`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if output != "text" && output != "json" {
				return ui.UsageError(fmt.Errorf("output %q is neither text nor json", output))
			}
			p, err := in.plan(args[0])
			if err != nil {
				return err
			}
			if output == "json" {
				return ui.PrintJSON(env.Stdout, p)
			}
			return printPlan(env.Stdout, p)
		},
	}
	in.flags(cmd)
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text or json")
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

// NewXML is weft vm xml.
func NewXML(env ui.Env) *cobra.Command {
	in := NewInput(env)
	cmd := &cobra.Command{
		Use:   "xml FILE",
		Short: "Print the devices of a machine's network in libvirt's words",
		Long: `Prints the devices element of a libvirt domain with the network devices of the machine in FILE ("-" is stdin), as they
would be after weft vm plan has come true. It needs no root, no agent, no pod and no libvirt.`,
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

// Input is what the command line says of a machine and its pod.
type Input struct {
	Env ui.Env
	// Bindings are the cluster's binding plugins by name: their domainAttachmentType.
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

// flags are all those of a command that only looks at a manifest.
func (v *Input) flags(cmd *cobra.Command) {
	v.MachineFlags(cmd)
	f := cmd.Flags()
	f.StringArrayVar(
		&v.nics, "nic", nil,
		"`NETWORK[,KEY=VALUE…]`: the pod's link of a network; mtu, mac, address and gateway, the last two once for each family; tap, where a plugin has left one",
	)
	f.BoolVar(&v.ordinal, "ordinal-names", false, "the pod's further links are net1, net2 …")
	f.StringVar(&v.standIn, "stand-in", string(state.Dummy),
		"dummy or bridge: what keeps the name of a pod's link that the guest speaks through")
}

// NewInput is what is said of a machine before any flag.
func NewInput(env ui.Env) Input { return Input{Env: env} }

// Options are what is read of a manifest by.
func (v *Input) Options() manifest.Options {
	return manifest.Options{Name: v.name, Bindings: v.Bindings, Default: model.VMBinding(v.usual)}
}

// MachineFlags say what a manifest and a pod's links do not.
func (v *Input) MachineFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&v.name, "name", "", "which `MACHINE` of the file is meant")
	f.StringVar(&v.usual, "default-binding", string(model.VMBridge),
		"bridge or masquerade: the cluster's defaultNetworkInterface")
	f.StringToStringVar(&v.Bindings, "binding", nil,
		"`PLUGIN=TYPE` of the cluster's binding plugins: tap, managedTap or direct")
	f.StringToStringVar(&v.devices, "device", nil, "`NETWORK=ADDRESS`: the PCI address of the device of an sriov network")
	f.BoolVar(&v.soft, "software-checksums", false, "the kernel computes checksums, as with KubeVirt until 1.7")
	f.BoolVar(&v.trust, "trust-guest", false, "no guard in the pod: the guest sends what its network lets through")
	f.StringVar(
		&v.join, "join", "",
		"`HOW` the tap of a guest that is bound directly is joined: redirect-peer, nft-fwd, redirect or mirred; the best that the kernel can",
	)
	f.IntVar(&v.subnet, "direct-subnet", 0,
		"`LENGTH` of a subnet that a guest with a single address is told, bound directly")
	f.StringSliceVar(&v.dns.Nameservers, "nameserver", nil, "`ADDRESS` in the pod's resolv.conf")
	f.StringSliceVar(&v.dns.Search, "search", nil, "`DOMAIN` in the pod's resolv.conf")
}

// Machine is what the plan may come from, but for what there is in the pod.
func (v *Input) Machine(file string) (plan.Input, error) {
	if v.usual != string(model.VMBridge) && v.usual != string(model.VMMasquerade) {
		return plan.Input{}, ui.UsageError(fmt.Errorf("--default-binding %q is neither bridge nor masquerade", v.usual))
	}
	data, err := v.Read(file)
	if err != nil {
		return plan.Input{}, err
	}
	if err := v.checkDirect(); err != nil {
		return plan.Input{}, err
	}
	machine, err := manifest.Read(data, v.Options())
	return plan.Input{
		VM: machine, Join: state.JoinHow(v.join), Subnet: v.subnet, SoftChecksums: v.soft, TrustGuest: v.trust,
		Devices: v.devices, DNS: v.dns,
	}, err
}

func (v *Input) plan(file string) (plan.Plan, error) {
	if v.standIn != string(state.Dummy) && v.standIn != string(state.Bridge) {
		return plan.Plan{}, ui.UsageError(fmt.Errorf("--stand-in %q is neither dummy nor bridge", v.standIn))
	}
	in, err := v.Machine(file)
	if err != nil {
		return plan.Plan{}, err
	}
	in.Ordinal, in.StandIn = v.ordinal, state.Kind(v.standIn)
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
	return os.ReadFile(file)
}
