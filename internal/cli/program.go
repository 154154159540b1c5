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

// handed is a command of weft that another program is. weft becomes the program beside it, with the same process id,
// environment and files, so that the program's end is the command's.
type handed struct {
	// words are the command's, for example vm phase1; of several whose words are given, the one with the most counts.
	words          string
	program, short string
	// alone tells that the program is this one command, and gets what follows it. Other programs have commands of the same
	// words.
	alone bool
	// verbs are the program's commands below this one: they are suggested to who forgets the first word.
	verbs string
}

// hidden reports whether the command is for weft itself.
func (h handed) hidden() bool { return h.short == "" }

// handedOn lists the commands that other programs are. It is compared with the programs by the test of
// docs/commands.md.
func handedOn() []handed {
	return []handed{
		{
			words: "agent", program: "weft-agent",
			short: "Run this node's agent: it answers CNI calls and keeps the routes to other nodes",
		},
		{
			words: "bench", program: "weft-bench", short: "Measure weft and its peers, interleaved in one run", alone: true,
			verbs: "cni ipam mesh migration networks path policy repair shim vm",
		},
		{
			words: "clean", program: "weft-agent",
			short: "Take away what another network has left on this node's kernel, when weft serves in its place",
		},
		{
			words: "conformance", program: "cni-conformance",
			short: "Judge CNI plugins of any vendor by the words of the specification", alone: true,
		},
		{
			words: "controller", program: "weft-controller",
			short: "Run what is to be done once in a cluster of Kubernetes about pools of addresses", alone: true,
		},
		{
			words: "flanneld", program: "weft-agent", short: "Stand in for flannel's daemon: same flags, same files, same rules",
		},
		{
			words: "lab", program: "weft-lab", short: "A whole cluster on this machine, in network namespaces",
			verbs: "down exec graph migrate reach status up",
		},
		{
			words: "sandbox", program: "weft-lab", short: "Run pods as a kubelet and its container runtime do, through CNI",
			verbs: "exec inspect list logs run serve status stop",
		},
		{
			words: "vm apply", program: "weft-lab",
			short: "Bring the interfaces of a machine that runs to what its manifest says now",
		},
		{words: "vm attach", program: "weft-lab", short: "Give a machine that runs another interface"},
		{
			words: "vm console", program: "weft-lab",
			short: "Attach this terminal to a machine's serial console; Ctrl-] leaves it",
		},
		{words: "vm detach", program: "weft-lab", short: "Take an interface from a machine that runs"},
		{words: "vm here", program: "weft-agent", short: "Say that a machine that was awaited on this node runs here now"},
		{words: "vm image", program: "weft-lab", short: "Make the guest that weft vm run boots, and print its files"},
		{words: "vm link", program: "weft-lab", short: "Give the guest's end of an interface its carrier, or take it"},
		{words: "vm list", program: "weft-lab", short: "List the machines that weft vm run runs"},
		{
			words: "vm moves", program: "weft-agent",
			short: "Show the machines whose addresses stay with them, as this node's agent sees them",
		},
		{words: "vm phase1", program: "weft-agent", short: "Make the network of a machine in its pod, or take it away"},
		{
			words: "vm phase2", program: "weft-agent",
			short: "Give a machine's hypervisor its devices, and weft-guest its sockets",
		},
		{
			words: "vm plan", program: "weft-lab",
			short: "Show what weft would make in the pod of a VirtualMachineInstance or VirtualMachine",
		},
		{words: "vm run", program: "weft-lab", short: "Run the machine of a manifest in a pod of its own"},
		{words: "vm status", program: "weft-lab", short: "Show a machine that runs, as KubeVirt reports it"},
		{words: "vm stop", program: "weft-lab", short: "Stop machines, and take away everything that is left of them"},
		{words: "vm watch", program: "weft-lab"},
		{words: "vm xml", program: "weft-lab", short: "Print the devices of a machine's network in libvirt's words"},
	}
}

// pluginProgram is the plugins without an agent, of which dhcp has a daemon.
const pluginProgram = "weft-plugin"

// handOn tells which program an invocation is handed to, and with which arguments: what the user wrote, what the user
// asks help for, or what a shell wants completed.
func handOn(args []string) (program string, argv []string, ok bool) {
	first := 0
	asked := len(args) > 0 && args[0] == "help"
	completed := len(args) > 0 && (args[0] == cobra.ShellCompRequestCmd || args[0] == cobra.ShellCompNoDescRequestCmd)
	if asked || completed {
		first = 1
	}
	if len(args) > 1 && args[0] == "dhcp" && args[1] == "daemon" { // by the name of the plugin; weft itself describes it
		return pluginProgram, args, true
	}
	var to handed
	var words []string
	for _, h := range handedOn() {
		w := strings.Fields(h.words)
		given := args[first:]
		if completed { // its last word is not written to its end
			given = given[:max(0, len(given)-1)]
		}
		if len(w) > len(words) && len(given) >= len(w) && slices.Equal(given[:len(w)], w) {
			to, words = h, w
		}
	}
	switch {
	case to.program == "":
		return "", nil, false
	case !to.alone:
		return to.program, append([]string{"weft"}, args...), true
	}
	argv = []string{"weft " + to.words}
	rest := args[first+len(words):]
	switch {
	case asked && to.verbs == "": // it has no command help
		return to.program, append(argv, "--help"), true
	case first == 1:
		argv = append(argv, args[0])
	}
	return to.program, append(argv, rest...), true
}

// become returns only when the program cannot be executed.
func become(env Env, program string, argv []string) error {
	path := filepath.Join(filepath.Dir(env.Self), program)
	if err := env.Exec(path, argv, os.Environ()); err != nil {
		return model.Faultf(model.CodeIO, "install "+program+" beside weft", "%s: %w", path, err)
	}
	return nil
}

// addHanded adds the commands that other programs are, for lists, suggestions and completions.
func addHanded(root *cobra.Command, env Env) {
	groups := map[string]*cobra.Command{"": root}
	add := func(group, name, short string) {
		c := &cobra.Command{Use: name, Short: short, Hidden: short == "", DisableFlagParsing: true}
		c.RunE = func(_ *cobra.Command, args []string) error {
			program, argv, _ := handOn(slices.Concat(strings.Fields(group), []string{name}, args))
			return become(env, program, argv)
		}
		groups[group].AddCommand(c)
		groups[strings.TrimSpace(group+" "+name)] = c
	}
	vm := &cobra.Command{Use: "vm", Short: "Run KubeVirt machines, and show how their network is made", Args: cobra.NoArgs}
	root.AddCommand(vm)
	groups["vm"] = vm
	for _, h := range handedOn() {
		w := strings.Fields(h.words)
		add(strings.Join(w[:len(w)-1], " "), w[len(w)-1], h.short)
		for verb := range strings.FieldsSeq(h.verbs) {
			add(h.words, verb, "weft "+h.words+" "+verb)
		}
	}
}
