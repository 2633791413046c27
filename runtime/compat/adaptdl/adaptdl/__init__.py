"""AdaptDL's API, on Tidepool's runtime: scripts written for it train here unchanged. See docs/user/adaptdl.md."""
