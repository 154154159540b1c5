// SPDX-License-Identifier: Apache-2.0

package command

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/model"
	vmcommand "github.com/weft-net/weft/internal/vm/command"
	"github.com/weft-net/weft/internal/vm/launch"
	"github.com/weft-net/weft/internal/vm/manifest"
)

// vmChange is a change of a machine that runs.
type vmChange struct {
	env     ui.Env
	dir     string
	timeout time.Duration
}

func (v *vmChange) flags(cmd *cobra.Command) {
	vmDirFlag(cmd.Flags(), &v.dir)
	cmd.Flags().DurationVar(&v.timeout, "timeout", 2*time.Minute, "how long the pod's network and the guest may take")
}

// ask has the machine of that name change.
func (v *vmChange) ask(cmd *cobra.Command, name string, c launch.Change) error {
	st, err := vmFind(v.dir, name)
	if err != nil {
		return err
	}
	if st.Phase != launch.Running {
		return model.Faultf(model.CodeInvalidEnv, "see `weft vm list`", "machine %s is %s", st.Key(), st.Phase)
	}
	st, err = launch.Ask(cmd.Context(), st, c, v.timeout)
	if err != nil {
		return err
	}
	for _, i := range st.Interfaces {
		fmt.Fprintf(v.env.Stdout, "%s\t%s\t%s\t%s\n", i.Name, i.MAC, i.LinkState, i.IP)
	}
	return nil
}

// vmCard is what is said of an interface that a machine gets, in the words of a manifest.
type vmCard struct {
	network, binding, mac, model string
	down                         bool
}

// read checks it by the rules of manifests.
func (c vmCard) read(name string, o manifest.Options) (model.VMInterface, error) {
	type object = map[string]any
	nic := object{"name": name, "model": c.model, "macAddress": c.mac}
	if c.down {
		nic["state"] = "down"
	}
	if c.binding == string(model.VMBridge) {
		nic["bridge"] = object{}
	} else {
		nic["binding"] = object{"name": c.binding}
	}
	text, err := json.Marshal(object{
		"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": object{"name": "it", "namespace": "it"},
		"spec": object{
			"domain":   object{"devices": object{"interfaces": []object{nic}}},
			"networks": []object{{"name": name, "multus": object{"networkName": c.network}}},
		},
	})
	if err != nil {
		return model.VMInterface{}, err
	}
	vm, err := manifest.Read(text, o)
	if err != nil {
		return model.VMInterface{}, err
	}
	return vm.Interfaces[0], nil
}

func newVMAttachCmd(env ui.Env) *cobra.Command {
	v, in, card := &vmChange{env: env}, vmcommand.NewInput(env), vmCard{}
	cmd := &cobra.Command{
		Use:   "attach [NAMESPACE/]MACHINE INTERFACE --network NAME",
		Short: "Give a machine that runs another interface",
		Long: `Has the pod attached to the network, where --store-dir of weft vm run has said how, gives the pod's link to
the guest, and plugs a card into the machine. It is what another interface and network in the manifest would be.`,
		Example: "  weft vm attach shop/web blue --network blue-net\n  weft vm link shop/web blue down\n  weft vm detach shop/web blue",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			nic, err := card.read(args[1], in.Options())
			if err != nil {
				return err
			}
			return v.ask(cmd, args[0], launch.Change{Attach: &nic})
		},
	}
	v.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&card.network, "network", "",
		"the `NAME` of the NetworkAttachmentDefinition, with its namespace where that is another one")
	f.StringVar(&card.binding, "as", string(model.VMBridge),
		"bridge, or the name of a binding `PLUGIN` such as weft-direct")
	f.StringToStringVar(&in.Bindings, "binding", nil,
		"`PLUGIN=TYPE` of the cluster's binding plugins: tap, managedTap or direct")
	f.StringVar(&card.mac, "mac", "", "the card's hardware `ADDRESS`, instead of the pod's")
	f.StringVar(&card.model, "model", "virtio", "the card's `MODEL`")
	f.BoolVar(&card.down, "down", false, "without a carrier")
	return cmd
}

func newVMDetachCmd(env ui.Env) *cobra.Command {
	v := &vmChange{env: env}
	cmd := &cobra.Command{
		Use:   "detach [NAMESPACE/]MACHINE INTERFACE",
		Short: "Take an interface from a machine that runs",
		Long: `Asks the guest to let go of the card, waits until it has, and gives the link back to the pod, which is then
detached from the network. The machine's first interface cannot be taken away. In a manifest it is "state: absent".`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return v.ask(cmd, args[0], launch.Change{Detach: args[1]})
		},
	}
	v.flags(cmd)
	return cmd
}

func newVMLinkCmd(env ui.Env) *cobra.Command {
	v := &vmChange{env: env}
	cmd := &cobra.Command{
		Use:   "link [NAMESPACE/]MACHINE INTERFACE up|down",
		Short: "Give the guest's end of an interface its carrier, or take it",
		Long:  `What pulls the cable out of the guest's card, or puts it in. In a manifest it is "state: up" and "state: down".`,
		Args:  cobra.ExactArgs(3),
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[2] != "up" && args[2] != "down" {
				return ui.UsageError(fmt.Errorf("%q is neither up nor down", args[2]))
			}
			return v.ask(cmd, args[0], launch.Change{Link: args[1], Up: args[2] == "up"})
		},
	}
	v.flags(cmd)
	return cmd
}

func newVMApplyCmd(env ui.Env) *cobra.Command {
	v, in := &vmChange{env: env}, vmcommand.NewInput(env)
	cmd := &cobra.Command{
		Use:   "apply FILE",
		Short: "Bring the interfaces of a machine that runs to what its manifest says now",
		Long: `Reads the VirtualMachineInstance or VirtualMachine in FILE ("-" is stdin). Interfaces that are new there
are attached, those that are absent or not there any more are detached, and carriers are given and taken. What else
an interface is cannot change.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := in.Machine(args[0])
			if err != nil {
				return err
			}
			return v.ask(cmd, m.VM.Key(), launch.Change{Machine: &m.VM})
		},
	}
	in.MachineFlags(cmd)
	v.flags(cmd)
	return cmd
}
