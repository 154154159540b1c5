// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/cli/agents"
	"github.com/weft-net/weft/internal/cli/bundle"
	"github.com/weft-net/weft/internal/cli/doctor"
	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/model"
)

// bundleLimit is the timeout of a support bundle.
const bundleLimit = 2 * time.Minute

type bundleFlags struct {
	source               *agents.Source
	file, socket, output string
	connections          []string
}

func newBundleCmd(env Env) *cobra.Command {
	f := bundleFlags{source: &agents.Source{Env: env}}
	cmd := &cobra.Command{
		Use:   "support-bundle",
		Short: "Collect diagnostics of this node into one file, or of all nodes",
		Long: `Writes a gzipped tar archive: the configuration, the attachments, the network state of the kernel, the findings of weft
doctor, and what the agent has answered to weft explain lately: weft explain --from says the same again without the
cluster. Values of keys that name secrets are redacted. Review the archive before you share it.

With --dir, --kubeconfig or --context it writes an archive of each node into a directory, NODE.tar.gz, with --node that of
one. In Kubernetes it executes weft in the agents' pods, for which you need the right to create pods/exec. A node whose agent does not answer
is named, the others' archives are written, and the exit code is 1.`,
		Example: "  weft support-bundle -o weft.tar.gz\n" +
			"  weft support-bundle --kubeconfig ~/.kube/config --explain shop/web,shop/db:5432",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd, env) },
	}
	fs := cmd.Flags()
	fs.StringVar(&f.file, "config", "", "the agent's configuration `FILE` (default: "+doctor.DefaultConfig+
		" if it exists)")
	fs.StringVar(&f.socket, "socket", "", "`PATH` of the agent's socket (default: the configuration's)")
	fs.StringVarP(&f.output, "output", "o", "",
		"the `FILE` to write, - for stdout (default: weft-TIME.tar.gz); of all nodes the directory (default: weft-TIME)")
	fs.StringArrayVar(&f.connections, "explain", nil,
		"first explain the connection `SRC,DST`, both as in weft explain, so that the bundle has the answers; "+
			"may be repeated")
	f.source.RemoteFlags(cmd, fs)
	f.source.NodeFlag(cmd, fs, "`NAME` of a node: only its archive")
	agents.ExcludeLocal(cmd, "config", "socket")
	return cmd
}

func (f *bundleFlags) run(cmd *cobra.Command, env Env) error {
	questions, err := f.questions()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), bundleLimit)
	defer cancel()
	if f.source.Remote() {
		return f.cluster(ctx, env, questions)
	}
	node, err := doctor.Local(ctx, f.file, cmp.Or(f.socket, env.Variable(ui.SocketVariable, "")))
	if err != nil {
		return err
	}
	unexplained := false
	if len(questions) > 0 {
		c, err := agents.Local(node.Config.StateDir)
		if err != nil {
			return err
		}
		unexplained = ask(ctx, env, c, questions)
	}
	if err := f.write(ctx, env, node); err != nil {
		return err
	}
	if unexplained {
		return ui.Exit(ui.Bad)
	}
	return nil
}

// questions parses the connections that are to be explained.
func (f *bundleFlags) questions() ([]query, error) {
	var out []query
	for _, c := range f.connections {
		src, dst, ok := strings.Cut(c, ",")
		if !ok || src == "" || dst == "" {
			return nil, ui.Misusef("for example --explain shop/web,shop/db:5432", "--explain %q is not SRC,DST", c)
		}
		q, err := (&explainFlags{source: f.source}).parse(src, dst)
		if err != nil {
			return nil, err
		}
		out = append(out, q)
	}
	return out, nil
}

// ask explains connections, so that the agents keep the answers. It reports whether one could not be explained.
func ask(ctx context.Context, env Env, c agents.Cluster, questions []query) (failed bool) {
	for _, q := range questions {
		x := newExplanation(c)
		if _, err := x.explain(ctx, q); err != nil { // the bundle is wanted even more
			ui.Warn(env.Stderr, fmt.Errorf("--explain %s,%s: %w", q.from, q.to, err))
			failed = true
		}
	}
	return failed
}

// write writes the bundle of this node.
func (f *bundleFlags) write(ctx context.Context, env Env, node doctor.Node) error {
	now := time.Now()
	path := f.output
	switch path {
	case "-":
		return doctor.Bundle(ctx, node, env.Version, now, env.Stdout)
	case "":
		path = bundleName(now) + ".tar.gz"
	}
	w, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return model.Errorf(model.CodeIO, "name another file with -o", "--output %q already exists", path)
	}
	if err != nil {
		return ui.FileError("for example -o weft.tar.gz, or -o - for stdout", "--output", path, err)
	}
	if err := errors.Join(doctor.Bundle(ctx, node, env.Version, now, w), w.Close()); err != nil {
		return err
	}
	_, err = fmt.Fprintln(env.Stdout, path)
	return err
}

func bundleName(now time.Time) string { return "weft-" + now.UTC().Format("20060102-150405") }

// cluster writes the bundles of all nodes into a directory.
func (f *bundleFlags) cluster(ctx context.Context, env Env, questions []query) error {
	path := f.output
	switch path {
	case "-":
		return ui.Misusef("for example -o bundles", "--output - of a cluster: there is a file for each node")
	case "":
		path = bundleName(time.Now())
	}
	c, err := f.source.Open(ctx)
	if err != nil {
		return err
	}
	bad := ask(ctx, env, c, questions)
	written, silent, err := bundle.Collect(ctx, c, path)
	if err != nil {
		return err
	}
	for _, name := range written {
		if _, err := fmt.Fprintln(env.Stdout, name); err != nil {
			return err
		}
	}
	for _, err := range silent {
		ui.Warn(env.Stderr, err)
	}
	if bad || len(silent) > 0 {
		return ui.Exit(ui.Bad)
	}
	return nil
}
