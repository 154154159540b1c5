// SPDX-License-Identifier: Apache-2.0

package command

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/lab/nodes"
)

// nodeChanger returns the changer of a lab's nodes.
func (f *labFlags) nodeChanger(env ui.Env, wait time.Duration) (nodes.Changer, error) {
	c, err := f.changer(env, wait)
	return nodes.Changer{Changer: c, Self: env.Self, Env: childEnv(env)}, err
}

// nodeNames checks the arguments NODE….
func nodeNames(args []string, example string) error {
	if len(args) == 0 {
		return ui.Misusef("for example `"+example+"`", "no node is named")
	}
	for i, a := range args {
		for _, b := range args[:i] {
			if a == b {
				return ui.Misusef("name each node once", "node %q is named twice", a)
			}
		}
	}
	return nil
}

func newLabAddNodeCmd(env ui.Env, f *labFlags) *cobra.Command {
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "add-node NODE…",
		Short: "Add nodes to a lab that is up",
		Long: "Adds nodes to a lab that is up: their Node objects, their namespaces on all wires, and their processes, and waits until\n" +
			"all agents have them as peers. A node named node4 has the addresses with that number. If it fails, it leaves nothing of\n" +
			"the nodes behind; if it was killed, repeat it, or remove the node.",
		Example: "  weft lab add-node node4\n" +
			"  weft lab add-node node5 edge",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := nodeNames(args, "weft lab add-node node4"); err != nil {
				return err
			}
			c, err := f.nodeChanger(env, wait)
			if err != nil {
				return err
			}
			return c.Add(cmd.Context(), args)
		},
	}
	cmd.Flags().DurationVar(&wait, "wait", defaultWait, "`DURATION` to wait until all agents have the node as a peer; 0: do not wait")
	return cmd
}

func newLabRemoveNodeCmd(env ui.Env, f *labFlags) *cobra.Command {
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "remove-node NODE…",
		Short: "Remove nodes from a lab that is up, with everything that runs on them",
		Long: "Removes nodes as if a host were switched off and its Node object deleted: ends its processes, deletes its pods, of\n" +
			"which those of Deployments and of VMs are created on other nodes, and releases its addresses and blocks, as `weft ipam\n" +
			"check --fix` does in a cluster. Use `weft lab drain` before, to move the pods first. It waits until no agent has the\n" +
			"node as a peer; if it was killed, repeat it.",
		Example: "  weft lab drain node2\n" +
			"  weft lab remove-node node2",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := nodeNames(args, "weft lab remove-node node2"); err != nil {
				return err
			}
			c, err := f.nodeChanger(env, wait)
			if err != nil {
				return err
			}
			return c.Remove(cmd.Context(), args)
		},
	}
	cmd.Flags().DurationVar(&wait, "wait", defaultWait, "`DURATION` to wait until no agent has the node as a peer; 0: do not wait")
	return cmd
}

func newLabDrainCmd(env ui.Env, f *labFlags) *cobra.Command {
	var wait time.Duration
	var force bool
	cmd := &cobra.Command{
		Use:   "drain NODE",
		Short: "Delete the pods of a node, and bind no others to it",
		Long: "Marks a node as unschedulable and deletes its pods, as kubectl drain does, and waits until they have ended and those of\n" +
			"Deployments and ReplicaSets run on other nodes. It refuses, and changes nothing, if the node has VMs, or pods that nothing\n" +
			"creates again; with --force these pods are deleted. `weft lab uncordon` makes the node schedulable again.",
		Example: "  weft lab drain node2\n" +
			"  weft lab drain node2 --force --wait 3m",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := f.changer(env, wait)
			if err != nil {
				return err
			}
			return c.Drain(cmd.Context(), args[0], force)
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "delete also pods that are not of a Deployment or a ReplicaSet")
	cmd.Flags().DurationVar(&wait, "wait", defaultWait, "`DURATION` to wait until the pods have ended and run elsewhere; 0: do not wait")
	return cmd
}

func newLabUncordonCmd(env ui.Env, f *labFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "uncordon NODE",
		Short: "Bind pods to a node again that was drained",
		Long:  "Makes a node schedulable again. Pods that run stay where they are.",
		Example: "  weft lab uncordon node2\n" +
			"  weft lab uncordon node2 --dir /run/weft/pooled",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := f.changer(env, 0)
			if err != nil {
				return err
			}
			return c.Uncordon(cmd.Context(), args[0])
		},
	}
}
