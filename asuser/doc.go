// Package asuser executes each run as the Unix user that it belongs to. It implements the ports of package run that act
// on the cluster – [run.Submitter], [run.Canceller] and [run.Workspace] – by finding the run's user and passing the
// call to that user's parts, which log in as that user only. It knows neither SSH nor certificates: [Config] provides
// the login.
//
// A user's parts are opened when a run first needs them, and closed when they have been idle for a while. Their number
// has a bound: a further user replaces the one that has been idle longest, or waits until one is idle.
package asuser
