// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/sandbox"
	"github.com/weft-net/weft/internal/sandbox/container"
)

func newSandboxExecCmd(env ui.Env, f *sandboxFlags) *cobra.Command {
	var namespace, name string
	cmd := &cobra.Command{
		Use:   "exec [NAMESPACE/]POD -- COMMAND [ARG...]",
		Short: "Run a command in the namespaces of a container",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 2 || len(args) == 2 && args[1] == "--" {
				return ui.UsageError(errors.New("name a pod and a command"))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[1] == "--" {
				args = append(args[:1:1], args[2:]...)
			}
			ns, pod := podName(args[0], namespace)
			return execInPod(cmd.Context(), env, sandbox.NewClient(f.stateDir), ns, pod, name, args[1:])
		},
	}
	cmd.Flags().SetInterspersed(false)
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "default", "of a pod that is named without one")
	cmd.Flags().StringVarP(&name, "container", "c", "", "the container (default: the first ordinary one)")
	return cmd
}

// execInPod runs a command in the namespaces of a pod's container, its first ordinary one when name is empty.
func execInPod(ctx context.Context, env ui.Env, runtime *sandbox.Client, ns, pod, name string, argv []string) error {
	d, err := runtime.Get(ctx, ns, pod)
	if err != nil {
		return err
	}
	c, err := pick(d.Pod, name)
	if err != nil {
		return err
	}
	if c.State != string(container.Running) {
		return model.Faultf(model.CodeUnknownContainer, "", "container %s of pod %s/%s does not run, it is %s", c.Name, ns,
			pod, c.State)
	}
	run := exec.Command(argv[0], argv[1:]...)
	run.Stdin, run.Stdout, run.Stderr = env.Stdin, env.Stdout, env.Stderr
	run.Env = append(environOf(d, c.ID), container.Mark+"="+d.ID)
	err = container.Exec(c.Process, run)
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return ui.Exit(container.ExitCode(exit.ProcessState))
	}
	if err != nil {
		return fmt.Errorf("command %q: %w", argv[0], err)
	}
	return nil
}

// environOf is the environment of a container's command, with the terminal of the caller.
func environOf(d sandbox.Detail, id string) []string {
	var env []string
	for _, c := range d.All {
		if c.ID == id {
			env = append(env, c.Env...)
		}
	}
	if term, ok := os.LookupEnv("TERM"); ok {
		env = append(env, "TERM="+term)
	}
	return env
}
