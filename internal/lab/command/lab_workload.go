// SPDX-License-Identifier: Apache-2.0

package command

import (
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/lab"
	"github.com/weft-net/weft/internal/lab/workload"
)

// defaultWait is the default of --wait.
const defaultWait = time.Minute

// changer returns the changer of a lab's workloads.
func (f *labFlags) changer(env ui.Env, wait time.Duration) (workload.Changer, error) {
	if wait < 0 {
		return workload.Changer{}, ui.Misusef("for example --wait 1m, or 0 not to wait", "--wait %s is negative", wait)
	}
	d, err := lab.At(f.dir)
	return workload.Changer{Dir: d, Logf: logf(env), Wait: wait}, err
}

func newLabApplyCmd(env ui.Env, f *labFlags) *cobra.Command {
	var files []string
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "apply -f FILE|DIR",
		Short: "Create or update pods, VMs, Deployments and other objects from manifests",
		Long: "Creates or updates the objects of manifests in a lab that is up, and waits until pods, replicas and VMs run. Nothing is\n" +
			"changed if one of the manifests is invalid. A pod whose spec has changed is replaced.",
		Example: "  weft lab apply -f examples/web.yaml\n" +
			"  weft lab apply -f examples,examples/machines --wait 3m", // glossary: a directory
		Args: ui.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := f.changer(env, wait)
			if err != nil {
				return err
			}
			return c.Apply(cmd.Context(), files, env.Stdin)
		},
	}
	cmd.Flags().StringSliceVarP(&files, "filename", "f", nil, "`FILE` or directory of manifests, or - for stdin; several, separated by commas")
	_ = cmd.MarkFlagRequired("filename")
	cmd.Flags().DurationVar(&wait, "wait", defaultWait, "`DURATION` to wait until everything runs; 0: do not wait")
	return cmd
}

func newLabDeleteCmd(env ui.Env, f *labFlags) *cobra.Command {
	var files []string
	var wait time.Duration
	var namespace string
	cmd := &cobra.Command{
		Use:   "delete [-f FILE|DIR] [KIND/NAME…]",
		Short: "Delete objects of a lab, and wait until their pods have ended",
		Long: "Deletes the objects of manifests, or those that are named, from a lab that is up, and waits until their pods and VMs have\n" +
			"ended. Deleting a namespace deletes what is in it.",
		Example: "  weft lab delete -f examples/web.yaml\n" +
			"  weft lab delete pod/web deployment/front",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := f.changer(env, wait)
			if err != nil {
				return err
			}
			if (len(files) > 0) == (len(args) > 0) {
				return ui.Misusef("for example `weft lab delete -f examples/web.yaml`, or `weft lab delete pod/web`",
					"name objects, or manifests with -f")
			}
			if len(files) > 0 {
				return c.Delete(cmd.Context(), files, env.Stdin)
			}
			var keys []store.Key
			for _, a := range args {
				k, err := objectKey(a, namespace)
				if err != nil {
					return err
				}
				keys = append(keys, k)
			}
			return c.DeleteKeys(cmd.Context(), keys, true)
		},
	}
	cmd.Flags().StringSliceVarP(&files, "filename", "f", nil, "`FILE` or directory of manifests, or - for stdin; several, separated by commas")
	cmd.Flags().StringVarP(&namespace, "namespace", "n", store.DefaultNamespace, "`NAMESPACE` of the objects that are named")
	cmd.Flags().DurationVar(&wait, "wait", defaultWait, "`DURATION` to wait until everything has ended; 0: do not wait")
	return cmd
}

func newLabScaleCmd(env ui.Env, f *labFlags) *cobra.Command {
	var wait time.Duration
	var namespace string
	replicas := -1
	cmd := &cobra.Command{
		Use:   "scale KIND/NAME --replicas COUNT",
		Short: "Set the number of replicas of a Deployment or a ReplicaSet",
		Long:  "Sets the number of replicas of a Deployment or a ReplicaSet of a lab, and waits until as many run.",
		Example: "  weft lab scale deployment/front --replicas 5\n" +
			"  weft lab scale replicaset/back --replicas 0 -n other",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := f.changer(env, wait)
			if err != nil {
				return err
			}
			k, err := objectKey(args[0], namespace)
			if err != nil {
				return err
			}
			if k.Group != "apps" {
				return ui.Misusef("for example deployment/front", "%q is not a Deployment or a ReplicaSet", args[0])
			}
			return c.Scale(cmd.Context(), k, replicas)
		},
	}
	cmd.Flags().IntVar(&replicas, "replicas", -1, "`COUNT` of pods")
	_ = cmd.MarkFlagRequired("replicas")
	cmd.Flags().StringVarP(&namespace, "namespace", "n", store.DefaultNamespace, "`NAMESPACE` of the object")
	cmd.Flags().DurationVar(&wait, "wait", defaultWait, "`DURATION` to wait until the pods run; 0: do not wait")
	return cmd
}

// objectKey parses KIND/NAME.
func objectKey(text, namespace string) (store.Key, error) {
	kind, name, ok := strings.Cut(text, "/")
	if !ok || name == "" {
		return store.Key{}, ui.Misusef("for example pod/web", "%q is not KIND/NAME", text)
	}
	kinds := map[string]store.Key{
		"pod": {Kind: "Pod"}, "deployment": {Group: "apps", Kind: "Deployment"}, "replicaset": {Group: "apps", Kind: "ReplicaSet"},
		"networkpolicy": {Group: "networking.k8s.io", Kind: "NetworkPolicy"}, "namespace": {Kind: "Namespace"},
		"service": {Kind: "Service"}, "vm": {Group: "kubevirt.io", Kind: "VirtualMachine"},
		"vmi": {Group: "kubevirt.io", Kind: "VirtualMachineInstance"}, "node": {Kind: "Node"},
	}
	lower := strings.ToLower(kind)
	for full, short := range map[string]string{
		"pods": "pod", "po": "pod", "deploy": "deployment", "deployments": "deployment", "rs": "replicaset",
		"replicasets": "replicaset", "netpol": "networkpolicy", "networkpolicies": "networkpolicy", "ns": "namespace",
		"svc": "service", "virtualmachine": "vm", "virtualmachineinstance": "vmi",
	} {
		if lower == full {
			lower = short
		}
	}
	k, ok := kinds[lower]
	if !ok {
		return k, ui.Misusef("write pod, deployment, replicaset, networkpolicy, namespace, service, vm or vmi; for other kinds use -f",
			"kind %q of %q is unknown", kind, text)
	}
	k.Name = name
	if k.Kind != "Namespace" && k.Kind != "Node" {
		k.Namespace = namespace
	}
	return k, nil
}
