// SPDX-License-Identifier: Apache-2.0

// Package agents reaches the agents of a cluster for a command: those of a lab by their admin sockets, those of a
// Kubernetes cluster through the API server, which executes weft in their pods, and only this node's.
package agents

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weft-net/weft/internal/cli/complete"
	"github.com/weft-net/weft/internal/cli/kube"
	"github.com/weft-net/weft/internal/cli/kube/podexec"
	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cluster/store/dir"
	"github.com/weft-net/weft/internal/cni"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/node/adminapi"
)

// Agent is the agent of a node.
type Agent struct {
	Node string
	// at is the path of its socket, or with dial what errors call it.
	at   string
	dial func(context.Context) (net.Conn, error)
	// token, unless it is nil, is sent with each request.
	token func() (string, error)
}

// request addresses a request to the agent.
func (a Agent) request(q adminapi.Request) (adminapi.Request, error) {
	q.Socket, q.Dial = a.at, a.dial
	if q.Server == "" {
		q.Server, q.Hint = "agent", "start the agent of node "+a.Node
	}
	if a.token == nil {
		return q, nil
	}
	var err error
	q.Token, err = a.token()
	return q, err
}

// Do sends a request to the agent.
func (a Agent) Do(ctx context.Context, q adminapi.Request, into any) error {
	q, err := a.request(q)
	if err == nil {
		err = q.Do(ctx, into)
	}
	if err != nil {
		return fmt.Errorf("node %s: %w", a.Node, err)
	}
	return nil
}

// Stream sends a request to the agent and calls f for each document of its response.
func (a Agent) Stream(ctx context.Context, q adminapi.Request, f func(document []byte) error) error {
	q, err := a.request(q)
	if err == nil {
		err = q.Stream(ctx, f)
	}
	if err != nil {
		return fmt.Errorf("node %s: %w", a.Node, err)
	}
	return nil
}

// Cluster is a cluster as a command sees it.
type Cluster struct {
	// Agents are those of all nodes. One that does not run is among them.
	Agents []Agent
	// Objects is the cluster's datastore; nil if only this node is known.
	Objects store.Objects
	// Nodes are the Node objects that were read to find the agents; nil: none were.
	Nodes []store.Object
	// Dir is the lab's directory; empty for other clusters.
	Dir string
	// self is the path of weft; server reaches pods of a Kubernetes cluster, or is nil.
	self   string
	server *podexec.Agents
}

// Agent returns the agent of a node.
func (c Cluster) Agent(node string) (Agent, bool) {
	i := slices.IndexFunc(c.Agents, func(a Agent) bool { return a.Node == node })
	if i < 0 {
		return Agent{}, false
	}
	return c.Agents[i], true
}

// Source is a cluster, as flags name it.
type Source struct {
	Env                                      ui.Env
	dir, kubeconfig, context, stateDir, node string
	// ofNode is set if the command has the flag --node.
	ofNode bool
}

// DefaultLab is the directory of a lab that is not named.
const DefaultLab = "/run/weft/lab"

// Flags adds the flags that choose a cluster, or one agent.
func (s *Source) Flags(cmd *cobra.Command) {
	s.NodeFlag(cmd, cmd.Flags(), "`NAME` of a node: use only its agent")
	s.ClusterFlags(cmd)
}

// ClusterFlags adds the flags that choose a cluster, for a command that needs the agents of several nodes.
func (s *Source) ClusterFlags(cmd *cobra.Command) {
	s.RemoteFlags(cmd, cmd.Flags())
	cmd.Flags().StringVar(&s.stateDir, "state-dir", "", "state `DIR` of an agent: use only that one")
	ExcludeStateDir(cmd)
}

// RemoteFlags adds to the flags of a command those that choose a cluster, and not only this node's agent.
func (s *Source) RemoteFlags(cmd *cobra.Command, fs *pflag.FlagSet) {
	fs.StringVar(&s.dir, "dir", "", "`DIR` of a lab: use its agents (default: $WEFT_LAB)")
	fs.StringVar(&s.kubeconfig, "kubeconfig", "",
		"kubeconfig `FILE`: use the agents of that cluster (default: $KUBECONFIG; in a pod its service account; else ~/.kube/config)")
	fs.StringVar(&s.context, "context", "", "`CONTEXT` of the kubeconfig (default: $WEFT_CONTEXT; else its current one)")
	complete.Flag(cmd, "context", func(context.Context) ([]string, error) { return kube.Contexts(s.Env, s.kubeconfig) })
	cmd.MarkFlagsMutuallyExclusive("dir", "kubeconfig")
	cmd.MarkFlagsMutuallyExclusive("dir", "context")
}

// NodeFlag adds to RemoteFlags the one that chooses one node's agent of the cluster. usage begins with `NAME`.
func (s *Source) NodeFlag(cmd *cobra.Command, fs *pflag.FlagSet, usage string) {
	fs.StringVar(&s.node, "node", "", usage+" (default: $"+ui.NodeVariable+")")
	complete.Flag(cmd, "node", func(ctx context.Context) ([]string, error) {
		all := *s
		all.node, all.ofNode = "", false
		return all.Nodes(ctx)
	})
	s.ofNode = true
}

// ExcludeStateDir forbids the flag --state-dir together with those of RemoteFlags and NodeFlag.
func ExcludeStateDir(cmd *cobra.Command) { ExcludeLocal(cmd, "state-dir") }

// ExcludeLocal forbids flags that name an agent of this node together with those that name one of a cluster.
func ExcludeLocal(cmd *cobra.Command, local ...string) {
	for _, flag := range remoteFlags() {
		for _, l := range local {
			if cmd.Flag(flag) != nil {
				cmd.MarkFlagsMutuallyExclusive(flag, l)
			}
		}
	}
}

// remoteFlags are the names of the flags of RemoteFlags and NodeFlag.
func remoteFlags() []string { return []string{"dir", "kubeconfig", "context", "node"} }

// Remote reports whether flags or $WEFT_NODE name a cluster or a node of one, and not only this node's agent.
func (s *Source) Remote() bool { return s.cluster() || s.chosenNode() != "" }

// cluster reports whether flags name a cluster.
func (s *Source) cluster() bool { return s.dir != "" || s.kubeconfig != "" || s.context != "" }

// chosenNode returns the node whose agent alone is asked; "" for all. An agent of this node wins over $WEFT_NODE.
func (s *Source) chosenNode() string {
	here := s.stateDir != "" || !s.cluster() && s.Env.Variable(ui.StateDirVariable, "") != ""
	if s.node != "" || !s.ofNode || here {
		return s.node
	}
	return s.Env.Variable(ui.NodeVariable, "")
}

// chosen returns the directory of a lab, the state directory of an agent and the context of a kubeconfig: those of flags,
// and if no flag names a cluster or an agent, those of the environment.
func (s *Source) chosen() (dir, stateDir, context string) {
	if s.cluster() || s.stateDir != "" {
		return s.dir, s.stateDir, s.context
	}
	dir, context = s.Env.Variable(ui.LabVariable, ""), s.Env.Variable(ui.ContextVariable, "")
	if s.node == "" {
		stateDir = s.Env.Variable(ui.StateDirVariable, "")
	}
	return dir, stateDir, context
}

// Named reports whether flags or environment variables of weft's own name a cluster or an agent.
func (s *Source) Named() bool {
	dir, stateDir, context := s.chosen()
	return s.Remote() || dir+stateDir+context != ""
}

// Namespace returns the namespace of names without one: that of the kubeconfig's context.
func (s *Source) Namespace() string {
	dir, stateDir, context := s.chosen()
	if dir+stateDir != "" {
		return "default"
	}
	return podexec.Namespace(s.Env, s.kubeconfig, context)
}

// Args returns the flags as they were set, for another process.
func (s *Source) Args() []string {
	var out []string
	for _, f := range [][2]string{
		{"--dir", s.dir}, {"--kubeconfig", s.kubeconfig}, {"--context", s.context}, {"--state-dir", s.stateDir},
		{"--node", s.node},
	} {
		if f[1] != "" {
			out = append(out, f[0], f[1])
		}
	}
	return out
}

// Open finds the cluster: the one that a flag names, else an environment variable, else that of the kubeconfig, else the
// lab in DefaultLab. If a node is named, its agent is the only one.
func (s *Source) Open(ctx context.Context) (Cluster, error) {
	c, err := s.open(ctx)
	if err != nil {
		return c, err
	}
	return c.choose(s.chosenNode())
}

// choose leaves only a node's agent; "" leaves all.
func (c Cluster) choose(node string) (Cluster, error) {
	if node == "" {
		return c, nil
	}
	a, has := c.Agent(node)
	if !has {
		var all []string
		for _, a := range c.Agents {
			all = append(all, a.Node)
		}
		hint := "see the nodes with `weft status`"
		if near := cni.Nearest(node, all); near != "" {
			hint = "did you mean " + near + "?"
		}
		return Cluster{}, model.Errorf(model.CodeInvalidConf, hint, "--node %q: the cluster has no such node", node)
	}
	c.Agents = []Agent{a}
	return c, nil
}

// open finds the cluster with the agents of all nodes.
func (s *Source) open(ctx context.Context) (Cluster, error) {
	dir, stateDir, context := s.chosen()
	switch {
	case dir != "":
		return s.lab(dir)
	case stateDir != "":
		return Local(stateDir)
	}
	k, found, err := podexec.Open(s.Env, s.kubeconfig, context)
	if err != nil {
		return Cluster{}, err
	}
	if found {
		return s.kubernetes(ctx, k)
	}
	if context != "" {
		return Cluster{}, ui.Misusef("add --kubeconfig, or set $KUBECONFIG",
			"--context %q: there is no kubeconfig", context)
	}
	if _, err := os.Stat(filepath.Join(DefaultLab, marker)); err == nil {
		return s.lab(DefaultLab)
	}
	return Cluster{}, ui.UsageError(model.Errorf(model.CodeInvalidConf,
		"add --dir of a lab, --kubeconfig of a cluster, or --state-dir of this node's agent", "no cluster is named"))
}

// marker is the file in the directory of a lab.
const marker = "lab.json"

// lab returns the cluster of a lab.
func (s *Source) lab(path string) (Cluster, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return Cluster{}, fmt.Errorf("--dir: %w", err)
	}
	if _, err := os.Stat(filepath.Join(path, marker)); err != nil {
		if errors.Is(err, fs.ErrPermission) {
			return Cluster{}, model.Errorf(model.CodeIO, "run it as root", "--dir %s: %w", path, err)
		}
		return Cluster{}, model.Errorf(model.CodeInvalidConf, "create one with `weft lab up`, or choose its directory with --dir",
			"no lab in %s", path)
	}
	nodes, err := os.ReadDir(filepath.Join(path, "nodes"))
	if err != nil {
		return Cluster{}, fmt.Errorf("nodes of the lab: %w", err)
	}
	objects, err := dir.Open(filepath.Join(path, "store"))
	if err != nil {
		return Cluster{}, err
	}
	c := Cluster{Objects: objects.Objects(), Dir: path, self: s.Env.Self}
	for _, n := range nodes {
		socket := adminapi.InStateDir(filepath.Join(path, "nodes", n.Name(), "agent"))
		c.Agents = append(c.Agents, Agent{Node: n.Name(), at: socket})
	}
	return c, nil
}

// Local returns the cluster of one agent, with that state directory. Its node is not known before it answers.
func Local(stateDir string) (Cluster, error) {
	socket := adminapi.InStateDir(stateDir)
	if _, err := os.Lstat(socket); err != nil {
		return Cluster{}, ui.FileError("start the agent, or set --state-dir to that of a running one", "--state-dir", stateDir, err)
	}
	return Cluster{Agents: []Agent{{Node: "this node", at: socket}}}, nil
}

// errNoPod is why the agent of a node does not answer.
var errNoPod = errors.New("no pod of the agent runs on the node")

// kubernetes returns the agents of a Kubernetes cluster.
func (s *Source) kubernetes(ctx context.Context, k *podexec.Agents) (Cluster, error) {
	pods, err := k.List(ctx)
	if err != nil {
		return Cluster{}, err
	}
	if len(pods) == 0 {
		return Cluster{}, model.Errorf(model.CodeNotAvailable, "install weft, or name another cluster with --kubeconfig",
			"no pod of weft's agent is in the cluster (label %s)", podexec.AgentLabel)
	}
	nodes, err := k.Objects().List(ctx, store.Nodes())
	if err != nil {
		return Cluster{}, fmt.Errorf("nodes of the cluster: %w", err)
	}
	c := Cluster{Objects: k.Objects(), Nodes: nodes, server: k}
	for _, p := range pods {
		c.Agents = append(c.Agents, Agent{
			Node: p.Node, at: "pod " + p.Namespace + "/" + p.Name,
			dial: func(ctx context.Context) (net.Conn, error) { return k.Dial(ctx, p) },
		})
	}
	for _, n := range nodes {
		if _, has := c.Agent(n.Key.Name); !has {
			c.Agents = append(c.Agents, Agent{
				Node: n.Key.Name, at: "node " + n.Key.Name,
				dial: func(context.Context) (net.Conn, error) { return nil, errNoPod },
			})
		}
	}
	return c, nil
}
