// SPDX-License-Identifier: Apache-2.0

// Package release installs weft in a Kubernetes cluster, upgrades it and removes it: by Helm's engine, from the chart that
// is part of the program. What `helm` shows and changes is the same release.
package release

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"time"

	"helm.sh/helm/v4/pkg/action"
	chartv2 "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/kube"
	"helm.sh/helm/v4/pkg/release/common"
	releasev1 "helm.sh/helm/v4/pkg/release/v1"
	"helm.sh/helm/v4/pkg/storage/driver"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/weft-net/weft/deploy/chart"
	"github.com/weft-net/weft/internal/model"
)

// Target is a cluster, as flags name it.
type Target struct {
	Kubeconfig, Context string
	// Namespace is that of the release; empty: chart.Namespace.
	Namespace string
	// Version is this program's.
	Version string
	Log     *slog.Logger
}

// Cluster is a cluster in which weft is, or is to be, installed.
type Cluster struct {
	version, namespace string
	actions            *action.Configuration
	client             kubernetes.Interface
	dynamic            dynamic.Interface
}

// Open connects to a cluster.
func Open(t Target) (*Cluster, error) {
	flags := genericclioptions.NewConfigFlags(true)
	namespace := t.Namespace
	if namespace == "" {
		namespace = chart.Namespace
	}
	flags.Namespace = &namespace
	if t.Kubeconfig != "" {
		flags.KubeConfig = &t.Kubeconfig
	}
	if t.Context != "" {
		flags.Context = &t.Context
	}
	config, err := flags.ToRESTConfig()
	if err != nil {
		return nil, model.Errorf(model.CodeInvalidConf, "add --kubeconfig, or set $KUBECONFIG", "no cluster is named: %w", err)
	}
	// One command asks for some sixty rights, and lists some twenty kinds.
	config.QPS, config.Burst = 100, 200
	c := &Cluster{version: t.Version, namespace: namespace, actions: action.NewConfiguration()}
	c.actions.SetLogger(t.Log.Handler())
	if err := c.actions.Init(flags, namespace, "secret"); err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	if c.client, err = kubernetes.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	if c.dynamic, err = dynamic.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	return c, nil
}

// chart returns the chart, whose image is that of this program's version if the version is a release's.
func (c *Cluster) chart() (*chartv2.Chart, error) {
	all, err := chart.Load()
	if err == nil && released(c.version) {
		all.Metadata.AppVersion = c.version
	}
	return all, err
}

// released reports whether a version is a release's tag, which has an image. The one of a commit behind a tag, as git
// describe has it (v0.1.0-12-g3c957eb4), has none.
func released(version string) bool {
	return regexp.MustCompile(`^v\d+\.\d+\.\d+(-(alpha|beta|rc)\.\d+)?$`).MatchString(version)
}

// Options are those of an installation or an upgrade.
type Options struct {
	// Values differ from the chart's defaults. An upgrade keeps those of the last revision that it does not name.
	Values map[string]any
	// DryRun changes nothing; the manifests are in the result.
	DryRun bool
	// Install allows that there is no release yet, Upgrade that there is one.
	Install, Upgrade bool
}

// Result is a revision of the release.
type Result struct {
	Revision int `json:"revision"`
	// Manifest are the objects of the revision, as YAML.
	Manifest string `json:"manifest,omitempty"`
}

// Apply installs or upgrades. Objects that exist already, as those of kubectl apply -f deploy/weft.yaml, become the
// release's. It does not wait until agents are ready.
func (c *Cluster) Apply(ctx context.Context, o Options) (Result, error) {
	if err := c.checkRights(ctx); err != nil {
		return Result{}, err
	}
	last, err := c.last()
	if err != nil {
		return Result{}, err
	}
	switch {
	case last == nil && !o.Install:
		return Result{}, model.Errorf(model.CodeInvalidConf, "weft cluster install",
			"namespace %s has no release %s: weft is not installed by it", c.namespace, chart.Name)
	case last != nil && !o.Upgrade && !resumable(last) && !leaving(last):
		return Result{}, model.Errorf(model.CodeInvalidConf, "weft cluster upgrade",
			"weft is installed already (revision %d)", last.Version)
	}
	if last != nil && leaving(last) { // a removal that was interrupted, and is revoked
		o.Values = maps.Clone(o.Values)
		if o.Values == nil {
			o.Values = map[string]any{}
		}
		if _, said := o.Values[uninstallValue]; !said {
			o.Values[uninstallValue] = false
		}
	}
	if o.DryRun {
		return c.apply(ctx, last, o)
	}
	var out Result
	err = c.locked(ctx, func(ctx context.Context) error {
		// Another installation may have ended meanwhile.
		if last, err = c.last(); err != nil {
			return err
		}
		if last != nil {
			if err := c.unlockRelease(last); err != nil {
				return err
			}
		}
		if err := c.applyKinds(ctx); err != nil {
			return err
		}
		out, err = c.apply(ctx, last, o)
		return err
	})
	return out, err
}

// unlockRelease marks a pending revision as failed: the caller holds the lock, so the process that began it was killed.
func (c *Cluster) unlockRelease(last *releasev1.Release) error {
	if !last.Info.Status.IsPending() {
		return nil
	}
	last.SetStatus(common.StatusFailed, "the process that installed it was killed")
	if err := c.actions.Releases.Update(last); err != nil {
		return fmt.Errorf("release: %w", err)
	}
	return nil
}

// resumable reports whether there is nothing but an installation that failed or was killed.
func resumable(last *releasev1.Release) bool {
	s := last.Info.Status
	return s == common.StatusFailed && last.Version == 1 || s == common.StatusPendingInstall || s == common.StatusUninstalled
}

// timeout bounds the requests of one apply.
const timeout = 5 * time.Minute

func (c *Cluster) apply(ctx context.Context, last *releasev1.Release, o Options) (Result, error) {
	strategy := action.DryRunNone
	if o.DryRun {
		strategy = action.DryRunServer
	}
	values, err := c.chart()
	if err != nil {
		return Result{}, err
	}
	var done any
	if last == nil || resumable(last) {
		i := action.NewInstall(c.actions)
		i.ReleaseName, i.Namespace, i.CreateNamespace = chart.Name, c.namespace, true
		i.Replace, i.TakeOwnership, i.SkipCRDs = last != nil, true, true
		i.ServerSideApply, i.ForceConflicts = true, true
		i.DryRunStrategy, i.WaitStrategy, i.Timeout = strategy, kube.HookOnlyStrategy, timeout
		done, err = i.RunWithContext(ctx, values, o.Values)
	} else {
		u := action.NewUpgrade(c.actions)
		u.Namespace, u.ResetThenReuseValues, u.TakeOwnership, u.SkipCRDs = c.namespace, true, true, true
		u.ServerSideApply, u.ForceConflicts, u.MaxHistory = "true", true, maxHistory
		u.DryRunStrategy, u.WaitStrategy, u.Timeout = strategy, kube.HookOnlyStrategy, timeout
		done, err = u.RunWithContext(ctx, chart.Name, values, o.Values)
	}
	if err != nil {
		return Result{}, fmt.Errorf("release: %w", err)
	}
	r, ok := done.(*releasev1.Release)
	if !ok {
		return Result{}, fmt.Errorf("release: helm returned a %T", done)
	}
	return Result{Revision: r.Version, Manifest: r.Manifest}, nil
}

// maxHistory is the number of revisions that are kept.
const maxHistory = 10

// last returns the last revision, nil if there is none.
func (c *Cluster) last() (*releasev1.Release, error) {
	found, err := c.actions.Releases.Last(chart.Name)
	if errors.Is(err, driver.ErrReleaseNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("release: %w", err)
	}
	r, ok := found.(*releasev1.Release)
	if !ok {
		return nil, fmt.Errorf("release: helm has a %T", found)
	}
	return r, nil
}
