// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"

	"github.com/weft-net/weft/internal/cluster/store/dir"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/sandbox"
	"github.com/weft-net/weft/internal/vm/launch"
	"github.com/weft-net/weft/internal/vm/manifest"
)

// startPod runs the VM's pod and returns the path of its network namespace.
func (r *vmRun) startPod(ctx context.Context, l manifest.Launch) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	text, err := launch.PodManifest(l, []string{"sleep", "infinity"})
	if err != nil {
		return "", err
	}
	env := r.env
	env.Stdin = bytesReader(text)
	c := sandbox.NewClient(r.pods.stateDir)
	pods, err := runManifest(ctx, env, r.pods, c, "-")
	if err != nil {
		return "", err
	}
	quiet := r.env
	quiet.Stdout = quiet.Stderr
	for _, p := range pods {
		if err := awaitPod(ctx, quiet, c, p, r.timeout); err != nil {
			return "", err
		}
	}
	d, err := c.Get(ctx, l.VM.Namespace, launch.PodName(l.VM.Name))
	if err == nil && d.Netns == "" {
		err = model.Errorf(model.CodeInvalidEnv, "", "pod %s/%s has no network namespace of its own", d.Namespace, d.Name)
	}
	return d.Netns, err
}

// watchPod stops the VM when its pod terminates.
func (r *vmRun) watchPod(ctx context.Context, st launch.Status, cancel context.CancelCauseFunc) {
	namespace, name := podName(st.Pod, "")
	err := sandbox.NewClient(st.Runtime).Watch(ctx, namespace, name, func(d *sandbox.Detail) (bool, error) {
		return d == nil || d.State == "Terminating" || d.State == "Failed" || d.State == "Succeeded", nil
	})
	if err == nil && ctx.Err() == nil {
		cancel(model.Errorf(model.CodeInvalidEnv, "", "VM %s: pod %s has terminated", st.Key(), st.Pod))
	}
}

// enableHotplug lets the agent attach the VM's pod to networks while the VM runs, if the cluster's manifests are known.
func (r *vmRun) enableHotplug(c *launch.Config) error {
	if r.store == "" {
		return nil
	}
	s, err := dir.Open(r.store)
	if err != nil {
		return err
	}
	namespace, name := podName(c.Status.Pod, c.Input.VM.Namespace)
	c.AttachNetworks = podNetworks{store: s, namespace: namespace, pod: name}.attach
	return nil
}
