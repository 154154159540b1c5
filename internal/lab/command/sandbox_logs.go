// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/cli/complete"
	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/sandbox"
	"github.com/weft-net/weft/internal/sandbox/container"
)

type logsFlags struct {
	namespace, container         string
	follow, previous, timestamps bool
}

func newSandboxLogsCmd(env ui.Env, f *sandboxFlags) *cobra.Command {
	var l logsFlags
	cmd := &cobra.Command{
		Use:   "logs [NAMESPACE/]POD",
		Short: "Print the logs of a container",
		Long: "Prints what a container wrote on stdout and stderr, from the files in --log-dir of the runtime. With --follow it prints\n" +
			"new lines until the container exits.",
		Example: "  weft sandbox logs web\n" +
			"  weft sandbox logs backend/db --follow --timestamps",
		Args: onePod,
		RunE: func(cmd *cobra.Command, args []string) error {
			ns, name := podName(args[0], l.namespace)
			return l.print(cmd.Context(), env, sandbox.NewClient(f.stateDir), ns, name)
		},
	}
	cmd.Flags().StringVarP(&l.namespace, "namespace", "n", "default", "`NAMESPACE` of a pod without one")
	cmd.Flags().StringVarP(&l.container, "container", "c", "", "`NAME` of the container (default: the first regular one)")
	cmd.Flags().BoolVarP(&l.follow, "follow", "f", false, "continue until the container exits")
	cmd.Flags().BoolVarP(&l.previous, "previous", "p", false, "logs of the container before the last restart")
	cmd.Flags().BoolVar(&l.timestamps, "timestamps", false, "prefix every line with its time")
	cmd.ValidArgsFunction = complete.Args(f.pods)
	return cmd
}

// findContainer returns the container with a name, or the first regular one if name is empty.
func findContainer(p sandbox.Pod, name string) (sandbox.Container, error) {
	var names []string
	for _, c := range p.Containers {
		if c.Name == name || name == "" && c.Kind == string(container.Regular) {
			return c, nil
		}
		names = append(names, c.Name)
	}
	return sandbox.Container{}, model.Errorf(model.CodeUnknownContainer, "it has "+strings.Join(names, ", "),
		"pod %s/%s has no container %q", p.Namespace, p.Name, name)
}

func (l logsFlags) print(ctx context.Context, env ui.Env, c *sandbox.Client, ns, name string) error {
	d, err := c.Get(ctx, ns, name)
	if err != nil {
		return err
	}
	target, err := findContainer(d.Pod, l.container)
	if err != nil {
		return err
	}
	path := target.Log
	if l.previous {
		path, err = previousLog(target)
		if err != nil {
			return err
		}
	}
	if path == "" {
		return model.Errorf(model.CodeUnknownContainer, "", "container %s of pod %s/%s has not started yet",
			target.Name, ns, name)
	}
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("log: %w", err)
	}
	defer func() { _ = file.Close() }()
	exited := func() bool {
		d, err := c.Get(ctx, ns, name)
		if err != nil {
			return true
		}
		now, err := findContainer(d.Pod, target.Name)
		return err != nil || now.ID != target.ID || now.State != string(container.Running)
	}
	return l.copy(ctx, env.Stdout, file, exited)
}

// previousLog returns the path of the log before the last restart.
func previousLog(c sandbox.Container) (string, error) {
	if c.Restarts == 0 {
		return "", model.Errorf(model.CodeUnknownContainer, "", "container %s was never restarted", c.Name)
	}
	path := filepath.Join(filepath.Dir(c.Log), fmt.Sprintf("%d.log", c.Restarts-1))
	if _, err := os.Stat(path); err != nil {
		return "", model.Errorf(model.CodeUnknownContainer, "",
			"container %s before its last restart was garbage-collected: %w", c.Name, err)
	}
	return path, nil
}

// copy prints lines until the end of the file, or with follow until the container has exited.
func (l logsFlags) copy(ctx context.Context, w io.Writer, r io.Reader, exited func() bool) error {
	in := bufio.NewReaderSize(r, 64<<10)
	rest, last := "", false
	for {
		line, err := in.ReadString('\n')
		rest += line
		switch {
		case err == nil:
			if err := l.line(w, strings.TrimSuffix(rest, "\n")); err != nil {
				return err
			}
			rest = ""
		case !errors.Is(err, io.EOF):
			return fmt.Errorf("log: %w", err)
		case !l.follow || last:
			return nil
		default:
			last = exited() // lines that were written before are read in a last pass
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(100 * time.Millisecond):
			}
		}
	}
}

func (l logsFlags) line(w io.Writer, s string) error {
	line, err := container.ParseLogLine(s)
	if err != nil {
		return err
	}
	if l.timestamps {
		fmt.Fprint(w, line.Time.Format(time.RFC3339Nano), " ")
	}
	end := "\n"
	if line.Partial {
		end = ""
	}
	_, err = io.WriteString(w, line.Text+end)
	return err
}
