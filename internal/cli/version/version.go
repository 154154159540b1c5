// SPDX-License-Identifier: Apache-2.0

// Package version is weft version: the versions of the command line and of a cluster's agents, and whether they may be
// mixed.
package version

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/cli/agents"
	"github.com/weft-net/weft/internal/cli/printer"
	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/node/adminapi"
)

// timeout is for all agents together.
const timeout = 5 * time.Second

// Report is what the command prints.
type Report struct {
	Client string `json:"client"`
	// Agents are those of all nodes, sorted by node; absent if none was asked.
	Agents []Agent `json:"agents,omitempty"`
	// Skew is that of the client and all agents that answer.
	Skew Skew `json:"skew"`
}

// Agent is the agent of a node.
type Agent struct {
	Node    string `json:"node"`
	Version string `json:"version,omitempty"`
	// Error is why it does not answer.
	Error string `json:"error,omitempty"`
}

// NewCmd returns the command.
func NewCmd(env ui.Env) *cobra.Command {
	source := agents.Source{Env: env}
	var client bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Show the versions of weft and of a cluster's agents, and whether they may be mixed",
		Long: `Prints the version of this program, and if a cluster is named or found, those of the agents of all its nodes, which it
asks for at most five seconds. Versions of one minor version, or of two in succession, may be mixed for any time. The
exit code is 1 if an agent does not answer, or the versions are further apart.

Keys of -o json: client, agents [{node, version, error}], skew (none, supported, unsupported or unknown).`,
		Example: "  weft version\n" +
			"  weft version --client\n" +
			"  weft version --dir /run/weft/lab -o jsonpath='{.agents[*].version}'",
		Args: ui.NoArgs,
	}
	source.Flags(cmd)
	cmd.Flags().BoolVar(&client, "client", false, "only the version of this program")
	output := printer.Flag(cmd.Flags(), printer.Text, printer.JSON)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		report := Report{Client: env.Version, Skew: Same}
		var missing error
		if !client {
			if missing = report.ask(cmd.Context(), &source); ui.IsUsageError(missing) && !source.Named() {
				missing = nil // there is no cluster, and the user has named none
			}
		}
		err := report.print(env.Stdout, output)
		switch {
		case err != nil || missing != nil:
			return cmp.Or(err, missing)
		case report.Skew == Unsupported || slices.ContainsFunc(report.Agents, func(a Agent) bool { return a.Error != "" }):
			return ui.Exit(ui.Bad)
		}
		return nil
	}
	return cmd
}

// ask asks all agents.
func (r *Report) ask(ctx context.Context, source *agents.Source) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	cluster, err := source.Open(ctx)
	if err != nil {
		return err
	}
	r.Agents = make([]Agent, len(cluster.Agents))
	var asking sync.WaitGroup
	for i, a := range cluster.Agents {
		asking.Go(func() { r.Agents[i] = ask(ctx, a) })
	}
	asking.Wait()
	slices.SortFunc(r.Agents, func(a, b Agent) int { return cmp.Compare(a.Node, b.Node) })
	versions := []string{r.Client}
	for _, a := range r.Agents {
		if a.Version != "" {
			versions = append(versions, a.Version)
		}
	}
	r.Skew = compare(versions)
	return nil
}

// ask asks one agent. Those before v0.2 report their version with their whole status only.
func ask(ctx context.Context, a agents.Agent) Agent {
	var answer adminapi.Version
	q := adminapi.Request{Method: http.MethodGet, Path: adminapi.RouteVersion, Timeout: timeout}
	err := a.Do(ctx, q, &answer)
	if errors.Is(err, adminapi.ErrNoServer) {
		q.Path = adminapi.RouteStatus
		err = a.Do(ctx, q, &answer)
	}
	out := Agent{Node: cmp.Or(answer.Node, a.Node), Version: answer.Version}
	if err != nil {
		out.Error = strings.TrimPrefix(err.Error(), "node "+a.Node+": ")
	}
	return out
}

func (r Report) print(w io.Writer, output *printer.Format) error {
	if output.Document() {
		return output.Print(w, r)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "client\t%s\n", r.Client)
	nodes := map[string][]string{}
	for _, a := range r.Agents {
		if a.Version != "" {
			nodes[a.Version] = append(nodes[a.Version], a.Node)
		}
	}
	versions := []string{}
	for v := range nodes {
		versions = append(versions, v)
	}
	slices.SortFunc(versions, func(a, b string) int { // most nodes first
		return cmp.Or(len(nodes[b])-len(nodes[a]), cmp.Compare(a, b))
	})
	for i, v := range versions {
		where := fmt.Sprintf("%d of %d nodes", len(nodes[v]), len(r.Agents))
		if i > 0 {
			where += ": " + names(nodes[v])
		}
		fmt.Fprintf(t, "agents\t%s on %s\n", v, where)
	}
	for _, a := range r.Agents {
		if a.Error != "" {
			fmt.Fprintf(t, "no answer\t%s: %s\n", a.Node, a.Error)
		}
	}
	if text := r.skewText(); text != "" {
		fmt.Fprintf(t, "skew\t%s\n", text)
	}
	return t.Flush()
}

// names lists nodes, and only counts those after the first few.
func names(nodes []string) string {
	const most = 8
	if len(nodes) <= most {
		return strings.Join(nodes, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(nodes[:most], ", "), len(nodes)-most)
}

func (r Report) skewText() string {
	switch r.Skew {
	case Supported:
		return "supported: one minor version apart at most"
	case Unsupported:
		return "unsupported: more than one minor version apart; upgrade by one minor version after the other"
	case Unknown:
		return "unknown: a version has no number"
	}
	return ""
}
