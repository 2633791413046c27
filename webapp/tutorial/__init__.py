"""The tutorial: two elastic trainings share eight GPUs, played over REST as any user's script could."""
