// SPDX-License-Identifier: Apache-2.0

package command

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/cli/complete"
	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/model"
	vmcommand "github.com/weft-net/weft/internal/vm/command"
	"github.com/weft-net/weft/internal/vm/launch"
	"github.com/weft-net/weft/internal/vm/manifest"
)

// vmChange is a change of a running VM.
type vmChange struct {
	env     ui.Env
	dir     string
	timeout time.Duration
}

func (v *vmChange) flags(cmd *cobra.Command) {
	vmDirFlag(cmd.Flags(), &v.dir)
	cmd.Flags().DurationVar(&v.timeout, "timeout", 2*time.Minute, "`DURATION` to wait for the pod's network and the guest")
}

// request requests a change of the VM with a name.
func (v *vmChange) request(cmd *cobra.Command, name string, c launch.Change) error {
	st, err := vmFind(v.dir, name)
	if err != nil {
		return err
	}
	if st.Phase != launch.Running {
		return model.Errorf(model.CodeInvalidEnv, "see `weft vm list`", "VM %s is %s", st.Key(), st.Phase)
	}
	st, err = launch.RequestChange(cmd.Context(), st, c, v.timeout)
	if err != nil {
		return err
	}
	for _, i := range st.Interfaces {
		fmt.Fprintf(v.env.Stdout, "%s\t%s\t%s\t%s\n", i.Name, i.MAC, i.LinkState, i.IP)
	}
	return nil
}

// vmInterface has the flags of an interface to attach.
type vmInterface struct {
	network, binding, mac, model string
	down                         bool
}

// read validates the flags like a manifest.
func (c vmInterface) read(name string, o manifest.Options) (model.VMInterface, error) {
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
	v, in, nic := &vmChange{env: env}, vmcommand.NewInput(env), vmInterface{}
	cmd := &cobra.Command{
		Use:   "attach [NAMESPACE/]VM INTERFACE --network NAME",
		Short: "Attach a running VM to another network",
		Long: `Attaches the pod to the network, if the VM runs with --store-dir, and hot-plugs an interface for it into the VM.
It is the same as another interface and network in the manifest.`,
		Example: "  weft vm attach shop/web blue --network blue-net\n  weft vm link shop/web blue down\n  weft vm detach shop/web blue",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			i, err := nic.read(args[1], in.Options())
			if err != nil {
				return err
			}
			return v.request(cmd, args[0], launch.Change{Attach: &i})
		},
	}
	v.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&nic.network, "network", "",
		"`NAME` or NAMESPACE/NAME of the NetworkAttachmentDefinition")
	f.StringVar(&nic.binding, "as", string(model.VMBridge),
		"`BINDING`: bridge, or the name of a binding plugin such as weft-direct")
	f.StringToStringVar(&in.Bindings, "binding", nil,
		"`PLUGIN=TYPE` of the cluster's binding plugins: tap, managedTap or direct")
	f.StringVar(&nic.mac, "mac", "", "MAC `ADDRESS` of the interface (default: the pod's)")
	f.StringVar(&nic.model, "model", "virtio", "`MODEL` of the interface")
	f.BoolVar(&nic.down, "down", false, "set the link down")
	cmd.ValidArgsFunction = complete.Args(vmNames(&v.dir))
	return cmd
}

func newVMDetachCmd(env ui.Env) *cobra.Command {
	v := &vmChange{env: env}
	cmd := &cobra.Command{
		Use:   "detach [NAMESPACE/]VM INTERFACE",
		Short: "Detach an interface from a running VM",
		Long: `Unplugs the interface, waits for the guest, returns the link to the pod and detaches the pod from the network.
The VM's first interface cannot be detached. It is the same as "state: absent" in the manifest.`,
		Example: "  weft vm detach shop/db blue\n" +
			"  weft vm detach shop/db blue --timeout 30s",
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return v.request(cmd, args[0], launch.Change{Detach: args[1]})
		},
	}
	v.flags(cmd)
	cmd.ValidArgsFunction = complete.Args(vmNames(&v.dir))
	return cmd
}

func newVMLinkCmd(env ui.Env) *cobra.Command {
	v := &vmChange{env: env}
	cmd := &cobra.Command{
		Use:   "link [NAMESPACE/]VM INTERFACE up|down",
		Short: "Set the link state of a VM's interface",
		Long:  `Sets the carrier of the guest's interface. It is the same as "state: up" and "state: down" in the manifest.`,
		Example: "  weft vm link shop/db blue down\n" +
			"  weft vm link shop/db blue up",
		Args: cobra.ExactArgs(3),
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[2] != "up" && args[2] != "down" {
				return ui.Misusef("write up or down", "argument %q is not up or down", args[2])
			}
			return v.request(cmd, args[0], launch.Change{Link: args[1], Up: args[2] == "up"})
		},
	}
	v.flags(cmd)
	cmd.ValidArgsFunction = complete.Args(vmNames(&v.dir), nil, complete.Words("up", "down"))
	return cmd
}

func newVMApplyCmd(env ui.Env) *cobra.Command {
	v, in := &vmChange{env: env}, vmcommand.NewInput(env)
	cmd := &cobra.Command{
		Use:   "apply FILE",
		Short: "Apply the interfaces of a manifest to a running VM",
		Long: `Reads the VirtualMachineInstance or VirtualMachine in FILE ("-" is stdin). It attaches new interfaces, detaches
interfaces that are absent or removed, and sets link states. Other properties of an interface cannot change.`,
		Example: "  weft vm apply examples/vm/bridge.yaml\n" +
			"  weft vm apply --timeout 30s examples/vm/masquerade.yaml",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := in.PlanInput(args[0])
			if err != nil {
				return err
			}
			return v.request(cmd, m.VM.Key(), launch.Change{VM: &m.VM})
		},
	}
	in.VMFlags(cmd)
	v.flags(cmd)
	return cmd
}
