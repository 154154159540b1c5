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
		Short: "Print what a container has written",
		Args:  onePod,
		RunE: func(cmd *cobra.Command, args []string) error {
			ns, name := podName(args[0], l.namespace)
			return l.print(cmd.Context(), env, sandbox.NewClient(f.stateDir), ns, name)
		},
	}
	cmd.Flags().StringVarP(&l.namespace, "namespace", "n", "default", "of a pod that is named without one")
	cmd.Flags().StringVarP(&l.container, "container", "c", "", "the container (default: the first ordinary one)")
	cmd.Flags().BoolVarP(&l.follow, "follow", "f", false, "go on until the container ends")
	cmd.Flags().BoolVarP(&l.previous, "previous", "p", false, "of the container before the last restart")
	cmd.Flags().BoolVar(&l.timestamps, "timestamps", false, "begin every line with its time")
	return cmd
}

// pick is the container that is meant.
func pick(p sandbox.Pod, name string) (sandbox.Container, error) {
	var names []string
	for _, c := range p.Containers {
		if c.Name == name || name == "" && c.Kind == string(container.Ordinary) {
			return c, nil
		}
		names = append(names, c.Name)
	}
	return sandbox.Container{}, model.Faultf(model.CodeUnknownContainer, "it has "+strings.Join(names, ", "),
		"pod %s/%s has no container %q", p.Namespace, p.Name, name)
}

func (l logsFlags) print(ctx context.Context, env ui.Env, c *sandbox.Client, ns, name string) error {
	d, err := c.Get(ctx, ns, name)
	if err != nil {
		return err
	}
	box, err := pick(d.Pod, l.container)
	if err != nil {
		return err
	}
	path := box.Log
	if l.previous {
		path, err = before(box)
		if err != nil {
			return err
		}
	}
	if path == "" {
		return model.Faultf(model.CodeUnknownContainer, "", "container %s of pod %s/%s has not started yet",
			box.Name, ns, name)
	}
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("log: %w", err)
	}
	defer func() { _ = file.Close() }()
	ended := func() bool {
		d, err := c.Get(ctx, ns, name)
		if err != nil {
			return true
		}
		now, err := pick(d.Pod, box.Name)
		return err != nil || now.ID != box.ID || now.State != string(container.Running)
	}
	return l.copy(ctx, env.Stdout, file, ended)
}

// before is the log of the container before the last restart.
func before(c sandbox.Container) (string, error) {
	if c.Restarts == 0 {
		return "", model.Faultf(model.CodeUnknownContainer, "", "container %s was never restarted", c.Name)
	}
	path := filepath.Join(filepath.Dir(c.Log), fmt.Sprintf("%d.log", c.Restarts-1))
	if _, err := os.Stat(path); err != nil {
		return "", model.Faultf(model.CodeUnknownContainer, "",
			"the container before the last restart of %s was cleaned up: %w", c.Name, err)
	}
	return path, nil
}

// copy prints lines until the end of the file, or with follow until the container has ended.
func (l logsFlags) copy(ctx context.Context, w io.Writer, r io.Reader, ended func() bool) error {
	in := bufio.NewReaderSize(r, 64<<10)
	rest, over := "", false
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
		case !l.follow || over:
			return nil
		default:
			over = ended() // what was written before is still read
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
