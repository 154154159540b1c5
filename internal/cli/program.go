// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/model"
)

// external is a command that another program implements. weft executes that program from its own directory (execve), so
// the process ID, the environment and the exit code are the program's.
type external struct {
	// path is the command, for example vm phase1. The longest match wins.
	path           string
	program, short string
	// single reports whether the program is this command alone, and gets the arguments after it. Other programs have
	// commands of the same path.
	single bool
	// subcommands are the program's commands below this one, for help and suggestions.
	subcommands string
}

// hidden reports whether the command is internal to weft.
func (x external) hidden() bool { return x.short == "" }

// externals lists the commands of other programs. A test compares the list with the programs.
func externals() []external {
	return []external{
		{
			path: "agent", program: "weft-agent",
			short: "Run this node's agent, which serves CNI calls and maintains the routes to other nodes",
		},
		{
			path: "bench", program: "weft-bench", short: "Measure weft and its peers, interleaved in one run", single: true,
			subcommands: "cni ipam mesh migration networks observe path policy repair report shim trace vm",
		},
		{
			path: "clean", program: "weft-agent",
			short: "Remove what another network, or weft itself, has left on this node",
		},
		{
			path: "cluster", program: "weft-cluster", short: "Install weft in a Kubernetes cluster, upgrade and remove it",
			single: true, subcommands: "install status uninstall upgrade",
		},
		{
			path: "conformance", program: "cni-conformance",
			short: "Check CNI plugins of any vendor against the specification", single: true,
		},
		{
			path: "controller", program: "weft-controller",
			short: "Run the controller of a Kubernetes cluster's address pools", single: true,
		},
		{
			path: "docker", program: "weft-docker",
			short: "Run the network driver by which Docker's containers are on the networks of pods", single: true,
		},
		{
			path: "flanneld", program: "weft-agent", short: "Replace flanneld: same flags, same files, same rules",
		},
		{
			path: "lab", program: "weft-lab", short: "Run a whole cluster on this host, in network namespaces",
			subcommands: "add-node apply cut delete down drain exec graph heal list migrate reach remove-node restart scale status ui uncordon up",
		},
		{
			path: "sandbox", program: "weft-lab", short: "Run pods as a kubelet and its container runtime do, through CNI",
			subcommands: "exec inspect list logs run serve status stop",
		},
		{
			path: "vm apply", program: "weft-lab",
			short: "Apply the interfaces of a manifest to a running VM",
		},
		{path: "vm attach", program: "weft-lab", short: "Attach a running VM to another network"},
		{
			path: "vm console", program: "weft-lab",
			short: "Attach this terminal to a VM's serial console; Ctrl-] detaches",
		},
		{path: "vm detach", program: "weft-lab", short: "Detach an interface from a running VM"},
		{path: "vm here", program: "weft-agent", short: "Report that a migrated VM runs on this node now"},
		{path: "vm image", program: "weft-lab", short: "Make the guest that weft vm run boots, and print its files"},
		{path: "vm link", program: "weft-lab", short: "Set the link state of a VM's interface"},
		{path: "vm list", program: "weft-lab", short: "List the VMs that weft vm run runs"},
		{
			path: "vm moves", program: "weft-agent",
			short: "List the VMs on this node that keep their addresses during a live migration",
		},
		{path: "vm phase1", program: "weft-agent", short: "Apply a VM's network to its pod, or undo it"},
		{
			path: "vm phase2", program: "weft-agent",
			short: "Print a VM's devices for its hypervisor, and serve weft-guest",
		},
		{
			path: "vm plan", program: "weft-lab",
			short: "Show the network plan for the pod of a VirtualMachineInstance or VirtualMachine",
		},
		{path: "vm run", program: "weft-lab", short: "Run the VM of a manifest in a pod of its own"},
		{path: "vm status", program: "weft-lab", short: "Show a running VM, as KubeVirt reports it"},
		{path: "vm stop", program: "weft-lab", short: "Stop VMs and clean up after them"},
		{path: "vm watch", program: "weft-lab"},
		{path: "vm xml", program: "weft-lab", short: "Print the network devices of a VM as libvirt XML"},
	}
}

// pluginProgram is the program of plugins that run without an agent. Its plugin dhcp has a daemon.
const pluginProgram = "weft-plugin"

// externalFor returns the program that runs a command line, and its arguments. The command line is a command, a request
// for help, or a completion request of a shell.
func externalFor(args []string) (program string, argv []string, ok bool) {
	first := 0
	help := len(args) > 0 && args[0] == "help"
	completion := len(args) > 0 && (args[0] == cobra.ShellCompRequestCmd || args[0] == cobra.ShellCompNoDescRequestCmd)
	if help || completion {
		first = 1
	}
	if len(args) > 1 && args[0] == "dhcp" && args[1] == "daemon" { // called as the plugin; weft itself prints its help
		return pluginProgram, args, true
	}
	var to external
	var words []string
	for _, x := range externals() {
		w := strings.Fields(x.path)
		typed := args[first:]
		if completion { // the last word is incomplete
			typed = typed[:max(0, len(typed)-1)]
		}
		if len(w) > len(words) && len(typed) >= len(w) && slices.Equal(typed[:len(w)], w) {
			to, words = x, w
		}
	}
	switch {
	case to.program == "":
		return "", nil, false
	case !to.single:
		return to.program, append([]string{"weft"}, args...), true
	}
	argv = []string{"weft " + to.path}
	rest := args[first+len(words):]
	switch {
	case help && to.subcommands == "": // the program has no command help
		return to.program, append(argv, "--help"), true
	case first == 1:
		argv = append(argv, args[0])
	}
	return to.program, append(argv, rest...), true
}

// execProgram executes a program in weft's directory. It returns only if that fails.
func execProgram(env Env, program string, argv []string) error {
	path := filepath.Join(filepath.Dir(env.Self), program)
	if err := env.Exec(path, argv, os.Environ()); err != nil {
		return model.Errorf(model.CodeIO, "install "+program+" in the directory of weft", "%s: %w", path, err)
	}
	return nil
}

// addExternals adds the commands of other programs, for help, suggestions and completion.
func addExternals(root *cobra.Command, env Env) {
	groups := map[string]*cobra.Command{"": root}
	add := func(group, name, short string) {
		c := &cobra.Command{Use: name, Short: short, Hidden: short == "", DisableFlagParsing: true}
		c.RunE = func(_ *cobra.Command, args []string) error {
			program, argv, _ := externalFor(slices.Concat(strings.Fields(group), []string{name}, args))
			return execProgram(env, program, argv)
		}
		groups[group].AddCommand(c)
		groups[strings.TrimSpace(group+" "+name)] = c
	}
	vm := &cobra.Command{
		Use:   "vm",
		Short: "Run KubeVirt VMs and show their network",
		Long: `Runs the VirtualMachineInstances and VirtualMachines of manifests under QEMU or libvirt, without KubeVirt, and changes
the interfaces of running VMs. On a node of a cluster with KubeVirt it shows a VM's network plan, applies it to a pod,
and lists the VMs that migrate.`,
		Example: "  weft vm run --detach examples/vm/masquerade.yaml\n" +
			"  weft vm plan examples/vm/bridge.yaml\n" +
			"  weft vm moves",
		Args: cobra.NoArgs,
	}
	root.AddCommand(vm)
	groups["vm"] = vm
	for _, x := range externals() {
		w := strings.Fields(x.path)
		add(strings.Join(w[:len(w)-1], " "), w[len(w)-1], x.short)
		for sub := range strings.FieldsSeq(x.subcommands) {
			add(x.path, sub, "weft "+x.path+" "+sub)
		}
	}
}
